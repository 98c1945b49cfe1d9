#compdef launch
# launch: completion for zsh. In ~/.zshrc: eval "$(launch completion zsh)"
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_launch() {
    local answer
    local -a texts shown how
    for answer in "${(@f)$(${~words[1]} __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        case $answer in
            '') ;;
            :files) compset -P '--*='; _files; return ;;
            :nospace) how+=(-S '') ;;
            *)
                texts+=("${answer%%$'\t'*}")
                [[ $answer == *$'\t'* ]] && how+=(-l)
                shown+=("${answer/$'\t'/  -- }")
                ;;
        esac
    done
    (( $#texts )) && compadd -V launch "${(@)how}" -d shown -a texts
}
compdef _launch launch
