/* Owns the table of verbs. Called by main.c and completion.c. What is not in it does not exist. */
#include "sdk/cli/commands.h"

#include <stddef.h>
#include <string.h>

static const struct command commands[] = {
	{ "run", VERB_RUN, verb_run, "IMAGE", "IMAGE [-- PROGRAM [ARGUMENT...]]",
	  "a sandbox, a program in it (or what the image says), and its output" },
	{ "create", VERB_CREATE, verb_create, "IMAGE", "IMAGE",
	  "a sandbox that stays; writes its id" },
	{ "exec", VERB_EXEC, verb_exec, "ID", "ID -- PROGRAM [ARGUMENT...]",
	  "a program in a sandbox" },
	{ "cp", VERB_CP, verb_cp, "ID: ID:", "SOURCE TARGET",
	  "files and folders into a sandbox, or out of it" },
	{ "ls", VERB_LS, verb_ls, "ID:", "ID:PATH", "what is in a folder of a sandbox" },
	{ "cat", VERB_CAT, verb_cat, "ID:", "ID:PATH", "what a file of a sandbox holds" },
	{ "file", VERB_FILE, verb_file, "stat ID:|mkdir ID:|rm ID:|watch ID:|mv ID:",
	  "stat|mkdir|rm|watch ID:PATH, mv ID:PATH PATH",
	  "look at, make, remove and rename files" },
	{ "port", VERB_PORT, verb_port, "ID", "ID PORT",
	  "a way to a port of a sandbox: address and token" },
	{ "kill", VERB_KILL, verb_kill, "ID EXEC", "ID EXEC",
	  "a signal to a program in a sandbox" },
	{ "fork", VERB_FORK, verb_fork, "ID", "ID [N]", "N more whose files begin as its are now" },
	{ "attach", VERB_ATTACH, verb_attach, "ID EXEC", "ID EXEC",
	  "the output of a program that runs, or ran, from the beginning on" },
	{ "logs", VERB_LOGS, verb_logs, "ID EXEC", "[-f] ID [EXEC]",
	  "what a program wrote so far, without EXEC the latest one" },
	{ "ps", VERB_PS, verb_ps, NULL, "[--execs ID]",
	  "the sandboxes there are, or one's programs" },
	{ "rm", VERB_RM, verb_rm, "ID...", "[--label KEY=VALUE] [ID...]", "destroy sandboxes" },
	{ "stats", VERB_STATS, verb_stats, "ID...", "[--label KEY=VALUE] [ID...]",
	  "what they use now" },
	{ "events", VERB_EVENTS, verb_events, "ID...", "[-f] [--label KEY=VALUE] [ID...]",
	  "what happened to sandboxes and their programs, or happens" },
	{ "top", VERB_TOP, verb_top, NULL, "[--sort cpu|memory|execs|age]",
	  "the busiest of them, again and again; once where nobody watches" },
	{ "inspect", VERB_INSPECT, verb_inspect, "ID", "ID", "one as it is now, or why it ended" },
	{ "label", VERB_LABEL, verb_label, "ID", "ID KEY=VALUE|KEY-...",
	  "give it labels, or take them (KEY-)" },
	{ "change", VERB_CHANGE, verb_change, "ID...", "[--label KEY=VALUE] [ID...]",
	  "other times than were given" },
	{ "fetched", VERB_FETCHED, verb_fetched, "ID...", "--path PATH [--label KEY=VALUE] [ID...]",
	  "tell the engine what a package proxy saw them fetch" },
	{ "wait", VERB_WAIT, verb_wait, "ID...", "[--for running|ended|exec:N] ID...",
	  "until they ended, or something else; says how" },
	{ "call", VERB_CALL, verb_call, "NAME",
	  "NAME [--input FILE]... | --register NAME --image IMAGE -- PROGRAM... | --list",
	  "call a function: verdict and output; register, list and remove functions" },
	{ "image", VERB_IMAGE, verb_image,
	  "import|ls|inspect IMAGE|rm IMAGE...|compose IMAGE...|gc|verify IMAGE|push IMAGE FILE|"
	  "pull FILE|pack ID|build IMAGE|hotset IMAGE",
	  "import SOURCE --name NAME | ls | inspect NAME | rm NAME... | compose NAME PART... | "
	  "gc | verify [NAME] | push NAME TARGET | pull [SOURCE] NAME | pack ID --name NAME | "
	  "build NAME --image BASE -- PROGRAM | hotset",
	  "bring images in, make them of others, list, check and remove them" },
	{ "policy", VERB_POLICY, verb_policy,
	  "check FILE|load FILE|show POLICY|ls|diff POLICY POLICY|rm POLICY...",
	  "check FILE | load FILE | show NAME | ls | diff A B | rm NAME...",
	  "what sandboxes may do: check, load and compare documents" },
	{ "phase", VERB_PHASE, verb_phase, "ID", "ID NAME",
	  "move it to another phase, and what may be done in it" },
	{ "check", VERB_CHECK, verb_check, NULL, "",
	  "what the engine holds, and what is left on the machine" },
	{ "proxy", VERB_PROXY, verb_proxy, "FILE", "[PATH]",
	  "joins stdin and stdout to an engine's socket, for ssh: addresses" },
	{ "completion", VERB_COMPLETION, verb_completion, "bash|zsh", "bash|zsh",
	  "a script that completes command lines: source <(dsec completion bash)" },
	{ "version", VERB_VERSION, verb_version, NULL, "", "of this program and of the engine" },
};

/* What a user may expect and no engine serves yet. */
static const char later[][8] = { "pause", "resume", "job", "replay" };

bool command_is_later(const char *name)
{
	for (size_t at = 0; at < sizeof(later) / sizeof(later[0]); at++) {
		if (!strcmp(later[at], name))
			return true;
	}
	return false;
}

const struct command *command_next(const struct command *command)
{
	const size_t count = sizeof(commands) / sizeof(commands[0]);

	if (!command)
		return commands;
	return ++command < commands + count ? command : NULL;
}

const struct command *command_find(const char *name)
{
	for (const struct command *c = command_next(NULL); c; c = command_next(c)) {
		if (!strcmp(c->name, name))
			return c;
	}
	return NULL;
}
