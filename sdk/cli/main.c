/*
 * The program `dsec`: finds the verb in its table and hands it the options. Called by the system.
 * It knows of the engine what dsec.h tells, and nothing else.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/session.h"
#include "sdk/cli/streams.h"
#include "sdk/cli/verbs.h"

struct command {
	const char *name;
	enum verb verb;
	int (*run)(const struct options *options);
	bool takes_arguments;
	const char *arguments, *help;
};

static const struct command commands[] = {
	{ "run", VERB_RUN, verb_run, true, "IMAGE [-- PROGRAM [ARGUMENT...]]",
	  "a sandbox, a program in it (or what the image says), and its output" },
	{ "create", VERB_CREATE, verb_create, true, "IMAGE",
	  "a sandbox that stays; writes its id" },
	{ "exec", VERB_EXEC, verb_exec, true, "ID -- PROGRAM [ARGUMENT...]",
	  "a program in a sandbox" },
	{ "cp", VERB_CP, verb_cp, true, "SOURCE TARGET",
	  "files and folders into a sandbox, or out of it" },
	{ "ls", VERB_LS, verb_ls, true, "ID:PATH", "what is in a folder of a sandbox" },
	{ "cat", VERB_CAT, verb_cat, true, "ID:PATH", "what a file of a sandbox holds" },
	{ "file", VERB_FILE, verb_file, true, "stat|mkdir|rm|watch ID:PATH, mv ID:PATH PATH",
	  "look at, make, remove and rename files" },
	{ "port", VERB_PORT, verb_port, true, "ID PORT",
	  "a way to a port of a sandbox: address and token" },
	{ "kill", VERB_KILL, verb_kill, true, "ID EXEC", "a signal to a program in a sandbox" },
	{ "attach", VERB_ATTACH, verb_attach, true, "ID EXEC",
	  "the output of a program that runs, or ran, from the beginning on" },
	{ "logs", VERB_LOGS, verb_logs, true, "ID EXEC", "what it wrote so far" },
	{ "ps", VERB_PS, verb_ps, false, "[--execs ID]",
	  "the sandboxes there are, or one's programs" },
	{ "rm", VERB_RM, verb_rm, true, "[--label KEY=VALUE] [ID...]", "destroy sandboxes" },
	{ "stats", VERB_STATS, verb_stats, true, "[--label KEY=VALUE] [ID...]",
	  "what they use now" },
	{ "inspect", VERB_INSPECT, verb_inspect, true, "ID", "one as it is now, or why it ended" },
	{ "label", VERB_LABEL, verb_label, true, "ID KEY=VALUE|KEY-...",
	  "give it labels, or take them (KEY-)" },
	{ "change", VERB_CHANGE, verb_change, true, "[--label KEY=VALUE] [ID...]",
	  "other times than were given" },
	{ "wait", VERB_WAIT, verb_wait, true, "ID", "until it ended; says why" },
	{ "image", VERB_IMAGE, verb_image, true,
	  "import SOURCE --name NAME | ls | inspect NAME | rm NAME...",
	  "bring images in, list and remove them" },
	{ "check", VERB_CHECK, verb_check, false, "",
	  "what the engine holds, and what is left on the machine" },
	{ "version", VERB_VERSION, verb_version, false, "", "of this program and of the engine" },
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *command_find(const char *name)
{
	for (size_t at = 0; at < COMMANDS; at++) {
		if (!strcmp(commands[at].name, name))
			return &commands[at];
	}
	return NULL;
}

/* Output that did not get out is noticed in main(). */
static void help_all(FILE *file)
{
	(void)fputs("usage: dsec [OPTION...] VERB [OPTION...] [ARGUMENT...]\n\n", file);
	for (size_t at = 0; at < COMMANDS; at++)
		(void)fprintf(file, "  %-8s %s\n", commands[at].name, commands[at].help);
	(void)fputs("\nOptions of every verb:\n", file);
	params_help(file, 0);
	(void)fputs(
		"\nAn ID is what create wrote, its unique beginning or end, or name:NAME.\n"
		"A SOURCE is dir:PATH, tar:FILE, docker-archive:FILE, oci:DIR, oci-archive:FILE\n"
		"or -; a FILE may be -, and compressed by gzip or zstd.\n"
		"SIZE may end in K, M, G or T; TIME in ms, s, m, h or d.\n"
		"dsec VERB --help has the options of a verb, dsec(1) everything.\n",
		file);
}

static void help_one(FILE *file, const struct command *command)
{
	(void)fprintf(file, "usage: dsec %s [OPTION...] %s\n\n%s\n\n", command->name,
		      command->arguments, command->help);
	params_help(file, command->verb);
	(void)fputs("\nOptions of every verb:\n", file);
	params_help(file, 0);
}

/* Whoever asked for JSON gets it for a command line that makes no sense, too. */
static bool wants_json(int argc, char **argv)
{
	for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
		if (!strcmp(argv[at], "--json"))
			return true;
	}
	return false;
}

static int refuse(struct options *options, const char *what, const char *which)
{
	struct session session = { .options = options };

	return session_end(&session,
			   session_refuse(&session, "%s%s; see dsec --help", what, which));
}

static int run(int argc, char **argv, struct options *options)
{
	const struct command *command;
	int used;

	used = params_parse_global(argc, argv, options);
	if (used >= 0 && options->help) {
		help_all(stdout);
		return 0;
	}
	if (used == argc) {
		help_all(stderr);
		return EXIT_TROUBLE;
	}
	command = used < 0 ? NULL : command_find(argv[used]);
	if (command &&
	    params_parse(argc - used - 1, argv + used + 1, command->verb, options) == 0) {
		if (options->help) {
			help_one(stdout, command);
			return 0;
		}
		if (command->takes_arguments || !options->argument_count)
			return command->run(options);
		options->json = wants_json(argc, argv);
		return refuse(options, command->name, " takes no arguments");
	}
	options->json = wants_json(argc, argv);
	return options->problem[0] ? refuse(options, options->problem, "") :
				     refuse(options, "there is no such verb: ", argv[used]);
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	struct streams streams;
	int status;

	if (streams_open(&streams) < 0)
		return EXIT_TROUBLE;
	(void)signal(SIGPIPE, SIG_IGN); /* a write says so, and then dsec ends in order */
	status = run(argc - 1, argv + 1, &options);
	params_done(&options);
	return streams_close(&streams, status);
}
