# launch: completion for fish. In ~/.config/fish/config.fish: launch completion fish | source
function __launch_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    for answer in ($program __complete fish $words "$current" 2>/dev/null)
        switch $answer
            case :nospace
            case :files
                set -l flag (string match -r '^--[a-z-]+=' -- "$current")
                for path in (__fish_complete_path (string replace -r '^--[a-z-]+=' '' -- "$current"))
                    printf '%s%s\n' "$flag" $path
                end
            case '*'
                printf '%s\n' $answer
        end
    end
end
complete -c launch -k -f -a '(__launch_complete)'
