/*
 * Runs inside sandboxes of launcher tests and says what it finds there: `probe WHAT [ARGUMENT]`.
 * Exit 0 when everything is as it should be, 1 with a line for each thing that is not.
 */
#include "tests/root/launch/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	failures++;
}

void refused(const char *what, long result, int error)
{
	if (result >= 0)
		fail("%s was allowed", what);
	else if (errno != error)
		fail("%s: %s instead of %s", what, strerrorname_np(errno), strerrorname_np(error));
}

static void exit_with(const char *argument)
{
	exit(argument ? atoi(argument) : 0);
}

static void say(const char *argument)
{
	char folder[256] = "?";

	(void)!getcwd(folder, sizeof folder);
	printf("pid=%d sid=%d uid=%d:%d gid=%d:%d groups=%d cwd=%s says=%s\n", getpid(), getsid(0),
	       getuid(), geteuid(), getgid(), getegid(), getgroups(0, NULL), folder,
	       argument ? argument : "");
}

static void wait_for_ever(const char *argument)
{
	(void)argument;
	for (;;)
		pause();
}

static void copy_input(const char *argument)
{
	char bytes[4096];
	ssize_t count;

	(void)argument;
	while ((count = read(0, bytes, sizeof bytes)) > 0)
		if (write(1, bytes, (size_t)count) != count)
			fail("short write");
}

static const struct {
	const char *name;
	void (*run)(const char *argument);
} probes[] = {
	{ "exit", exit_with },
	{ "say", say },
	{ "wait", wait_for_ever },
	{ "cat", copy_input },
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && i < sizeof probes / sizeof *probes; i++) {
		if (strcmp(argv[1], probes[i].name) != 0)
			continue;
		probes[i].run(argc > 2 ? argv[2] : NULL);
		return failures ? 1 : 0;
	}
	printf("no probe named %s\n", argc > 1 ? argv[1] : "");
	return 2;
}
