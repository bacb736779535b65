# Completion of helmdeck for fish. The program itself knows what may follow: packs, their inputs, sessions, jobs.
function __helmdeck_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -lx _HELMDECK_COMPLETE fish
    $words[1] -- $words (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command helmdeck --no-files --keep-order --arguments '(__helmdeck_complete)'
