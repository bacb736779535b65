#compdef helmdeck
# Completion of helmdeck for zsh. The program itself knows what may follow: packs, their inputs, sessions, jobs.
_helmdeck() {
    local line value entry
    local -a lines whole open
    lines=("${(@f)$(_HELMDECK_COMPLETE=zsh "${(Q)words[1]}" -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        value="${line%%$'\t'*}"
        entry="${${value//\\/\\\\}//:/\\:}"
        if [[ "$line" == *$'\t'* ]]; then entry+=":${line#*$'\t'}"; fi
        if [[ "$value" == *[=/,.] ]]; then open+=("$entry"); else whole+=("$entry"); fi
    done
    local found=1
    if (($#open)); then _describe -V values open -S '' && found=0; fi
    if (($#whole)); then _describe -V values whole && found=0; fi
    return found
}
if [[ "${funcstack[1]}" == _helmdeck ]]; then
    _helmdeck "$@"
else
    compdef _helmdeck helmdeck
fi
