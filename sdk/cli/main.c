/*
 * The program `dsec`: finds the verb in the table (commands.c) and hands it the options. Called by
 * the system. It knows of the engine what dsec.h tells, and nothing else.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/commands.h"
#include "sdk/cli/environment.h"
#include "sdk/cli/session.h"
#include "sdk/cli/streams.h"

/* Output that did not get out is noticed in main(). */
static void help_all(FILE *file)
{
	(void)fputs("usage: dsec [OPTION...] VERB [OPTION...] [ARGUMENT...]\n\n", file);
	for (const struct command *c = command_next(NULL); c; c = command_next(c))
		(void)fprintf(file, "  %-10s %s\n", c->name, c->help);
	(void)fputs("\nOptions of every verb:\n", file);
	params_help(file, 0);
	(void)fputs(
		"\nAn ID is what create wrote, its unique beginning or end, or name:NAME.\n"
		"A SOURCE is dir:PATH, tar:FILE, docker-archive:FILE[:TAG], oci:DIR[:TAG],\n"
		"oci-archive:FILE[:TAG] or -; a FILE may be -, and compressed by gzip or zstd.\n"
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
		if (environment_read(options) < 0) {
			options->json = wants_json(argc, argv);
			return refuse(options, options->problem, "");
		}
		if (command->takes || !options->argument_count)
			return command->run(options);
		options->json = wants_json(argc, argv);
		return refuse(options, command->name, " takes no arguments");
	}
	options->json = wants_json(argc, argv);
	if (options->problem[0])
		return refuse(options, options->problem, "");
	return refuse(options,
		      command_is_later(argv[used]) ? "this verb is not there yet: " :
						     "there is no such verb: ",
		      argv[used]);
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
