#!/usr/bin/env bash
# The completions and the manual of the command-line tool name the options that it has, and no others; and
# where options take names, those names. zsh and fish are asked where they are installed.
#
#   completion_test.sh GANNET DATA_FOLDER
set -uo pipefail
gannet=$(realpath "$1") data=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/checks.sh"
commands="build search exact convert info verify"

# The long options of a text, sorted; -k is the only one without a long name.
options_in() { grep -oE -e '(^|[^a-zA-Z-])(--[a-z][a-z-]*|-k)\b' | grep -oE -e '--?[a-z-]+' | sort -u; }
# agree WHAT WANTED GOT
agree() {
  checks=$((checks + 1))
  diff <(echo "$2") <(echo "$3") > log || fail "$1: < is the program's, > is not: $(grep '^[<>]' log | tr '\n' ' ')"
}

options_of() { # COMMAND: those of its --help; texts may name others'
  "$gannet" "$1" --help | sed -nE 's/^  (-[a-zA-Z],)?(--?[a-z-]+) .*/\2/p' | sort -u
}
# names_of COMMAND OPTION: from the text that refuses another
names_of() {
  "$gannet" "$1" x y "$2" no-such-name 2>&1 | sed -n 's/.*is not one of //p' | tr -d ' ' | tr ',' '\n' | sort
}

bash_words() { # WORD...: what bash offers for the last of them
  bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gannet
    printf "%s\n" "${COMPREPLY[@]}"' - "$here/completion/gannet.bash" "$@"
}
zsh_specs() { # WORD...: the arguments that _gannet gives to zsh's own _arguments
  zsh -fc 'compdef() { }; _arguments() { print -rl -- "$@" }; _describe() { print -rl -- ${(P)2} }
    words=("${@[2,-1]}"); CURRENT=$#words; source "$1"' - "$here/completion/_gannet" "$@"
}
fish_words() { # LINE: what fish offers for it
  fish --no-config -c "source $here/completion/gannet.fish; complete -C '$1'" | cut -f 1
}
have_zsh=$(command -v zsh) have_fish=$(command -v fish)

agree "bash, commands" "$(printf '%s\n' $commands --help --version | sort)" "$(bash_words gannet '' | sort)"
for command in $commands; do
  wanted=$(options_of "$command")
  agree "bash, $command" "$wanted" "$({ bash_words gannet "$command" -; echo "$wanted" | grep -x -e -k; } | sort -u)"
  agree "bash, $command, -k" "$(grep -x -e -k <<< "$wanted")" "$(bash_words gannet "$command" -k | grep -x -e -k)"
  [ -z "$have_zsh" ] ||
    agree "zsh, $command" "$wanted" "$(zsh_specs gannet "$command" - | sed 's/\[.*//' | options_in)"
  [ -z "$have_fish" ] ||
    agree "fish, $command" "$wanted" "$({ fish_words "gannet $command --"; fish_words "gannet $command -" | grep -x -e -k; } | sort -u)"
done
manual=$(sed 's/Fl Fl /--/g; s/Fl k/-k/g' "$here/gannet.1" | options_in)
agree "manual" "$(for command in $commands; do options_of "$command"; done | sort -u | grep -vx -e --help)" "$manual"

for option in build:--metric build:--element build:--graph build:--knn search:--procedure; do
  command=${option%%:*} option=${option##*:}
  wanted=$(names_of "$command" "$option")
  agree "bash, $option" "$wanted" "$(bash_words gannet "$command" x "$option" '' | sort)"
  [ -z "$have_fish" ] ||
    agree "fish, $option" "$wanted" "$(fish_words "gannet $command x $option " | sort)"
  [ -z "$have_zsh" ] ||
    agree "zsh, $option" "$wanted" \
      "$(zsh_specs gannet "$command" - | sed -nE "s/^$option\[.*:\((.*)\)$/\1/p" | tr ' ' '\n' | sort)"
done
# Files, with folders and blanks in names.
mkdir 'a folder'
touch 'a row.fbin' 'a text.txt' 'a folder/b.npy'
agree "bash, files" "$(printf '%s\n' 'a folder/' 'a row.fbin' 'a text.txt')" "$(bash_words gannet build 'a' | sort)"
agree "bash, files of ids" "$(printf '%s\n' 'a folder/' 'a folder/b.npy' | head -n 1)" \
  "$(bash_words gannet build x --ids 'a')"
agree "bash, files in folders" 'a folder/b.npy' "$(bash_words gannet build x --ids 'a folder/')"
[ -n "$have_zsh" ] || echo "(no zsh here)"
[ -n "$have_fish" ] || echo "(no fish here)"
finish
