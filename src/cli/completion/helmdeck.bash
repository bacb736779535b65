# Completion of helmdeck for bash. The program itself knows what may follow: packs, their inputs, sessions, jobs.
_helmdeck() {
    # Bash also splits words at = and :, which belong to key=value: join the fragments again, up to the cursor.
    local before="${COMP_LINE:0:COMP_POINT}" program="${1/#\~\//$HOME/}" fragment index line separated
    local -a words=()
    for ((index = 0; index <= COMP_CWORD; index++)); do
        fragment="${COMP_WORDS[index]}"
        separated=no
        if [[ "$before" == [[:space:]]* || ${#words[@]} -eq 0 ]]; then separated=yes; fi
        before="${before#"${before%%[![:space:]]*}"}"
        if ((index == COMP_CWORD)); then fragment="$before"; fi
        if [[ "$separated" == yes ]]; then
            words+=("$fragment")
        else
            words[${#words[@]} - 1]+="$fragment"
        fi
        before="${before#"$fragment"}"
    done
    # Bash replaces only the last fragment of the word.
    local kept="${words[${#words[@]} - 1]}"
    kept="${kept%"$2"}"
    COMPREPLY=()
    while IFS=$'\t' read -r line _; do
        if [[ "$line" != *[=/,.] ]]; then line+=" "; fi
        COMPREPLY+=("${line#"$kept"}")
    done < <(_HELMDECK_COMPLETE=bash "$program" -- "${words[@]}" 2>/dev/null)
}
complete -o nospace -o bashdefault -o nosort -F _helmdeck helmdeck 2>/dev/null ||
    complete -o nospace -o bashdefault -F _helmdeck helmdeck
