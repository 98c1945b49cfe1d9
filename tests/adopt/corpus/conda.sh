# Stands in for conda's shell function: activation puts the environment's folder first in PATH.
conda() {
    case $1 in
        activate)
            case $2 in
                */*) CONDA_PREFIX=$2 ;;
                *) CONDA_PREFIX=/opt/conda/envs/$2 ;;
            esac
            export CONDA_PREFIX CONDA_DEFAULT_ENV=$2
            PATH=$CONDA_PREFIX/bin:$PATH
            ;;
        deactivate) ;;
        *) command conda "$@" ;;
    esac
}
