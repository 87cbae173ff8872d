# Completion of gannet(1) for fish. completion_test.sh holds its options against those of the program.

set -l commands build search info verify exact convert
set -l none "not __fish_seen_subcommand_from $commands"

complete -c gannet -f -n "$none" -a build -d "build an index over a file of vectors"
complete -c gannet -f -n "$none" -a search -d "find near rows for each query"
complete -c gannet -f -n "$none" -a info -d "what an index, or a file of vectors, holds"
complete -c gannet -f -n "$none" -a verify -d "check every byte of an index"
complete -c gannet -f -n "$none" -a exact -d "true neighbours, without an index"
complete -c gannet -f -n "$none" -a convert -d "vectors from one format to another"
complete -c gannet -f -n "$none" -l version -d "show the version"
complete -c gannet -f -s h -l help -d "show the options"
complete -c gannet -F -n "__fish_seen_subcommand_from $commands" -l json -d "answer as one JSON object"

set -l build "__fish_seen_subcommand_from build"
complete -c gannet -n "__fish_seen_subcommand_from build exact" -l ids -r -d "a number for each row"
complete -c gannet -n $build -l element -x -a "auto f32 f16 bf16 i8 u8" -d "as stored"
complete -c gannet -n $build -l degree -x -d "edges a row"
complete -c gannet -n $build -l knn-degree -x -d "neighbours known before pruning"
complete -c gannet -n $build -l graph -x -a "auto cagra ggnn none tsdg" -d "the graph to walk"
complete -c gannet -n $build -l detours -x -a "auto near whole" -d "entries of lists that detours go by"
complete -c gannet -n $build -l reorder -x -a "auto rank distance" -d "what compares edges"
complete -c gannet -n $build -l knn -x -a "auto cells nn_descent exact" -d "how neighbours are found"
complete -c gannet -n $build -l seed -x -d "seed"
complete -c gannet -n $build -l calibration -r -d "queries like those to come"
complete -c gannet -n $build -l no-calibration -d "do not learn which effort gives which recall"
complete -c gannet -n $build -l memory-mb -x -d "refuse a build that needs more, in MiB"
complete -c gannet -n $build -l plan -d "only say what the build would need"

set -l search "__fish_seen_subcommand_from search"
complete -c gannet -n $search -l recall -x -d "wanted share of true neighbours"
complete -c gannet -n $search -l beam -x -d "rows kept while walking"
complete -c gannet -n $search -l procedure -x -d "how to walk" \
    -a "auto best_first exact cagra cagra_single_cta cagra_multi_cta two_lists ggnn tsdg tsdg_small tsdg_large slack"
complete -c gannet -n $search -l warps-per-query -x -a "1 8 16" -d "warps of a query of two_lists"
complete -c gannet -n $search -l truth -r -d "true neighbours, to say how many were found"

set -l neighbours "__fish_seen_subcommand_from search exact"
complete -c gannet -n $neighbours -s k -x -d "neighbours of each query"
complete -c gannet -n $neighbours -s o -l out -r -d "write the neighbours to a file"
complete -c gannet -n $neighbours -l show -x -d "queries to print"

complete -c gannet -n "__fish_seen_subcommand_from exact" -l block-mb -x -d "rows in memory at once, in MiB"
complete -c gannet -n "__fish_seen_subcommand_from convert" -l rows -x -d "only these, as FIRST:COUNT"
complete -c gannet -n "__fish_seen_subcommand_from convert" -l element -x -a "auto f32 f16 i8 u8" -d "for .npy"

complete -c gannet -n "__fish_seen_subcommand_from build exact" -l metric -x -a "l2 ip cosine" -d "what near means"
complete -c gannet -n "__fish_seen_subcommand_from build search exact" -l device -x \
    -a "auto cpu cuda cuda:0 cuda:1" -d "where to work"
complete -c gannet -n "__fish_seen_subcommand_from build search exact convert" -s f -l force \
    -d "write over a file that is there"
complete -c gannet -n "__fish_seen_subcommand_from build search exact verify" -l threads -x \
    -d "threads to use at most"
