# launch: completion for bash. In ~/.bashrc: eval "$(launch completion bash)"
_launch() {
    local answer
    COMPREPLY=()
    while IFS= read -r answer; do
        case $answer in
            :files) compopt -o default ;;
            :nospace) compopt -o nospace ;;
            *) COMPREPLY+=("${answer%%$'\t'*}") ;;
        esac
    done < <("${1/#\~/$HOME}" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -o nosort -F _launch launch
