#!/bin/sh
# A root folder of its own for one run: the system read-only, all else empty and gone at the end, no network.
# sandbox.sh CORPUS RECORDS CASE HOME PROGRAMS -- COMMAND...
set -e
corpus=$1 records=$2 case=$3 home=$4 programs=$5
shift 6
mount --make-rprivate /
mount -t tmpfs -o size=64m,mode=755 sandbox "$records/root"
cd "$records/root"
mkdir -p proc dev/shm etc tmp run var/log var/run usr opt/recorder mnt srv data models scratch root rec workspace
chmod 1777 tmp
for folder in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$folder" ]; then cp -P "/$folder" .; elif [ -d "/$folder" ]; then mkdir "$folder" && mount -o bind,ro "/$folder" "$folder"; fi
done
mount -o bind,ro /usr usr
mount -t tmpfs local usr/local
mkdir -p usr/local/bin
cp -a /etc/passwd /etc/group /etc/nsswitch.conf etc/
[ -d /etc/alternatives ] && cp -a /etc/alternatives etc/
for device in null zero urandom; do : > "dev/$device" && mount --bind "/dev/$device" "dev/$device"; done
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mount -t proc proc proc
mount --bind "$records" rec
cp -r "$corpus/bin" opt/recorder/bin
cd opt/recorder/bin
for name in python python3 python3.10 python3.11 python3.12 vllm sglang docker podman torchrun; do ln recorder $name; done
for name in hostname date nvidia-smi nproc scontrol dig getent ip pgrep tail lsof pkill kill killall sleep curl wget pip \
    pip3 ray module fuser nc journalctl systemctl modprobe sysctl; do
    ln world $name
done
ln apptainer singularity
cd ../../..
mkdir -p opt/conda/etc/profile.d opt/conda/bin
cp "$corpus/conda.sh" opt/conda/etc/profile.d/conda.sh
printf '. /opt/conda/etc/profile.d/conda.sh\nconda activate "$1"\n' > opt/recorder/bin/activate
for program in $programs; do
    case $program in
        /usr/bin/*) mount --bind opt/recorder/bin/recorder ".$program" && continue ;;
        /*) target=.$program ;;
        *) target=.$home/serve/$program ;;
    esac
    mkdir -p "${target%/*}"
    case $program in
        */) ;;
        */activate)
            folder=${target#.}
            printf 'export VIRTUAL_ENV=%s PATH=%s:$PATH\n' "${folder%/bin/*}" "${folder%/*}" > "$target"
            ;;
        *) cp opt/recorder/bin/recorder "$target" ;;
    esac
done
mkdir -p ".$home/serve"
cp -r "$case/." ".$home/serve"
chroot . /bin/sh -c 'cd "$0" && exec "$@"' "$home/serve" "$@" || echo "ended with $?" > rec/status
# What was left in the background has its say too.
for _ in $(seq 500); do
    left=0
    for process in proc/[0-9]*; do left=$((left + 1)); done
    [ "$left" -le 1 ] && break
    sleep 0.02
done
