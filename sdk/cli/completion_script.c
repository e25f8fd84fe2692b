/*
 * What bash and zsh run to complete a command line of dsec. Called by completion.c. They know no
 * verb and no option: for every word they ask `dsec completion answer`, with the words so far, of
 * which the last is the one to complete. Its lines are whole words, the last one is "files" where a
 * file's name would be right, too, or "words".
 */
#include <stddef.h>
#include <string.h>

#include "sdk/cli/completion.h"

/*
 * bash splits words at ':' and '=' and wants back what comes after the last of them: words are put
 * together again from the line, and what it has is taken off.
 */
static const char bash[] =
	"_dsec() {\n"
	"\tlocal line=${COMP_LINE:0:COMP_POINT} word words=() at head\n"
	"\tfor ((at = 0; at <= COMP_CWORD; at++)); do\n"
	"\t\tif ((at == 0)) || [[ $line == [[:space:]]* ]]; then\n"
	"\t\t\tline=${line#\"${line%%[![:space:]]*}\"}\n"
	"\t\t\twords+=('')\n"
	"\t\tfi\n"
	"\t\tword=${COMP_WORDS[at]}\n"
	"\t\t((at < COMP_CWORD)) || word=$line\n"
	"\t\twords[-1]+=$word\n"
	"\t\tline=${line#\"$word\"}\n"
	"\tdone\n"
	"\tmapfile -t COMPREPLY < <(\"${words[0]}\" completion answer -- \"${words[@]:1}\" "
	"2>/dev/null)\n"
	"\t((${#COMPREPLY[@]})) || return\n"
	"\t[[ ${COMPREPLY[-1]} == words ]] || compopt -o default\n"
	"\tunset 'COMPREPLY[-1]'\n"
	"\tword=${words[-1]} head=${word%\"${word##*[:=]}\"}\n"
	"\t[[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=(\"${COMPREPLY[@]#\"$head\"}\")\n"
	"\t[[ ${COMPREPLY[*]: -1} == [:=] ]] && compopt -o nospace\n"
	"}\n"
	"complete -F _dsec dsec\n";

static const char zsh[] =
	"#compdef dsec\n"
	"_dsec() {\n"
	"\tlocal -a found\n"
	"\tlocal how\n"
	"\tfound=(\"${(@f)$(\"${words[1]}\" completion answer -- \"${(@)words[2,CURRENT-1]}\" "
	"\"$PREFIX\" 2>/dev/null)}\")\n"
	"\thow=$found[-1]\n"
	"\tfound=(\"${(@)found[1,-2]}\")\n"
	"\tcompadd -Q -- \"${(@)found:#*[:=]}\"\n"
	"\tcompadd -Q -S '' -- \"${(@M)found:#*[:=]}\"\n"
	"\t[[ $how != files ]] || _files\n"
	"}\n"
	"if [[ $funcstack[1] == _dsec ]]; then _dsec \"$@\"; else compdef _dsec dsec; fi\n";

const char *completion_script(const char *shell)
{
	if (!strcmp(shell, "bash"))
		return bash;
	return !strcmp(shell, "zsh") ? zsh : NULL;
}
