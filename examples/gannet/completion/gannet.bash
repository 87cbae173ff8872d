# Completion of gannet(1) for bash. completion_test.sh holds its options against those of the program.

_gannet() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local options='' vectors='fbin|f16bin|i8bin|u8bin|fvecs|bvecs|npy' files=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "build search info verify exact convert --help --version" -- "$word")
    return
  fi
  case $before in
    --metric) options="l2 ip cosine" ;;
    --element) options="auto f32 f16 bf16 i8 u8" ;;
    --graph) options="auto cagra ggnn none tsdg" ;;
    --detours) options="auto near whole" ;;
    --reorder) options="auto rank distance" ;;
    --knn) options="auto cells nn_descent exact" ;;
    --device) options="auto cpu cuda cuda:0 cuda:1" ;;
    --procedure)
      options="auto best_first exact cagra cagra_single_cta cagra_multi_cta two_lists ggnn tsdg tsdg_small tsdg_large slack" ;;
    --warps-per-query) options="1 8 16" ;;
    --calibration) files=$vectors ;;
    --ids) files='npy|u64bin|ibin' ;;
    --truth | -o | --out) files='npy|u64bin|ibin|ivecs' ;;
    --degree | --knn-degree | --seed | --memory-mb | --threads | -k | --recall | --beam | --show | \
      --block-mb | --rows)
      return ;;
  esac
  if [ -z "$options" ] && [[ $word == -* ]]; then
    case $command in
      build)
        options="--ids --metric --element --degree --knn-degree --graph --detours --reorder --knn --seed --calibration
          --no-calibration --memory-mb --plan --device --force --threads --json --help" ;;
      search)
        options="-k --out --show --force --recall --beam --procedure --warps-per-query --device --truth --threads
          --json --help" ;;
      exact)
        options="--ids -k --out --show --force --metric --device --block-mb --threads --json --help" ;;
      convert) options="--rows --element --force --json --help" ;;
      info) options="--json --help" ;;
      verify) options="--threads --json --help" ;;
    esac
  fi
  if [ -n "$options" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    # A colon ends a word for readline: only the part behind it is put in.
    if declare -F __ltrim_colon_completions > /dev/null; then __ltrim_colon_completions "$word"; fi
    return
  fi
  mapfile -t COMPREPLY < <(
    compgen -d -S / -- "$word"
    compgen -f -- "$word" | while IFS= read -r name; do
      if [ ! -d "$name" ] && { [ -z "$files" ] || [[ $name =~ \.($files)$ ]]; }; then echo "$name"; fi
    done)
  compopt -o filenames -o nospace 2> /dev/null
  if [ ${#COMPREPLY[@]} -eq 1 ] && [[ ${COMPREPLY[0]} != */ ]]; then compopt +o nospace 2> /dev/null; fi
}
complete -F _gannet gannet
