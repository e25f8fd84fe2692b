/*
 * Starting an engine of one's own, with scripts in the engine's place: what it is given, what its
 * failing to start looks like, and that closing lets go of the lifeline.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsec/dsec.h"

struct script {
	char folder[64], program[96], noted[96];
};

static struct script script_write(const char *text)
{
	struct script script = { .folder = "/tmp/dsec-private-XXXXXX" };
	FILE *file;

	cr_assert_not_null(mkdtemp(script.folder));
	(void)snprintf(script.program, sizeof(script.program), "%s/dsecd", script.folder);
	(void)snprintf(script.noted, sizeof(script.noted), "%s/noted", script.folder);
	file = fopen(script.program, "we");
	cr_assert_not_null(file);
	cr_assert_gt(fprintf(file, "#!/bin/sh\nnoted=%s\n%s\n", script.noted, text), 0);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(chmod(script.program, 0755), 0);
	cr_assert_eq(setenv("DSEC_DSECD", script.program, 1), 0);
	return script;
}

static void script_remove(const struct script *script)
{
	(void)unlink(script->program);
	(void)unlink(script->noted);
	(void)rmdir(script->folder);
}

static int private_open(void)
{
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = "private:",
		.images = "/images with blanks",
	};
	struct dsec *d;

	return dsec_open(&opts, &d);
}

static void noted_read(const struct script *script, char *text, size_t text_bytes)
{
	FILE *file = fopen(script->noted, "re");
	size_t n;

	cr_assert_not_null(file, "the script did not get so far");
	n = fread(text, 1, text_bytes - 1, file);
	text[n] = '\0';
	(void)fclose(file);
}

Test(client_private, an_engine_that_ends_at_once_is_quoted)
{
	struct script script = script_write("echo first; echo '  the reason' >&2; exit 1");
	int r = private_open();

	cr_assert_eq(r, -ECHILD);
	cr_assert_not_null(strstr(dsec_error(NULL, r), "did not start:   the reason"), "%s",
			   dsec_error(NULL, r));
	script_remove(&script);
}

Test(client_private, an_engine_that_says_nothing_at_all_is_an_error_too)
{
	struct script script = script_write("exit 0");
	int r = private_open();

	cr_assert_eq(r, -ECHILD);
	cr_assert_not_null(strstr(dsec_error(NULL, r), "it ended before it was ready"));
	script_remove(&script);
}

Test(client_private, anything_but_ready_is_refused)
{
	struct script script = script_write("echo nonsense >&4; cat <&3");

	cr_assert_eq(private_open(), -EPROTO);
	script_remove(&script);
}

/* It never listens, so dsec_open() fails after it was ready, and takes it down again. */
Test(client_private, the_engine_gets_its_descriptors_and_loses_its_lifeline)
{
	struct script script = script_write("printf '%s|' \"$@\" >$noted\n"
					    "ls /proc/$$/fd | tr '\\n' ' ' >>$noted\n"
					    "echo ready >&4; exec 4>&-\n"
					    "cat <&3; echo lifeline ended >>$noted");
	char text[1024], name[64];
	int fd = dup(2); /* one that the engine has no business with */
	int r = private_open();

	cr_assert_eq(r, -ENOENT, "%s", dsec_error(NULL, r));
	noted_read(&script, text, sizeof(text));
	(void)snprintf(name, sizeof(name), "--instance|private-%d-", getpid());
	cr_assert_eq(strncmp(text, name, strlen(name)), 0, "%s", text);
	cr_assert_not_null(strstr(text, "|--socket|/run/dsec-private-"), "%s", text);
	cr_assert_not_null(strstr(text, "|--lifeline|3|--ready-fd|4|"), "%s", text);
	cr_assert_not_null(strstr(text, "|--images|/images with blanks|"), "%s", text);
	/* A shell holds its script as 10. */
	cr_assert(strstr(text, "|0 1 10 2 3 4 ") || strstr(text, "|0 1 2 3 4 "), "%s", text);
	cr_assert_not_null(strstr(text, "lifeline ended\n"), "closing waits for the end: %s", text);
	(void)close(fd);
	script_remove(&script);
}
