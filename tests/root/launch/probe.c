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
#include <sys/stat.h>
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

void allowed(const char *what, long result)
{
	if (result < 0)
		fail("%s: %s", what, strerrorname_np(errno));
}

static void exit_with(const char *argument)
{
	exit(argument ? atoi(argument) : 0);
}

static void say(const char *argument)
{
	char folder[256] = "?";

	(void)!getcwd(folder, sizeof folder);
	printf("pid=%d sid=%d uid=%d:%d gid=%d:%d groups=%d cwd=%s env=%s says=%s\n", getpid(),
	       getsid(0), getuid(), geteuid(), getgid(), getegid(), getgroups(0, NULL), folder,
	       getenv("NAME") ? getenv("NAME") : "", argument ? argument : "");
}

static void wait_for_ever(const char *argument)
{
	if (argument)
		printf("%s\n", argument);
	fflush(stdout);
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

static void write_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);

	allowed(path, fd);
	allowed("write", write(fd, "x", 1));
}

static void is_missing(const char *path)
{
	refused(path, access(path, F_OK), ENOENT);
}

static void change_mode(const char *path)
{
	allowed(path, chmod(path, 0711));
}

/* The password file becomes something that a careless reader hangs on. */
static void passwd_become(const char *what)
{
	allowed("unlink", unlink("/etc/passwd"));
	if (strcmp(what, "fifo") == 0)
		allowed("mkfifo", mkfifo("/etc/passwd", 0644));
	else if (strcmp(what, "loop") == 0)
		allowed("symlink", symlink("passwd", "/etc/passwd"));
	else if (strcmp(what, "device") == 0)
		allowed("symlink", symlink("/dev/zero", "/etc/passwd"));
	else if (strcmp(what, "large") == 0)
		allowed("truncate",
			ftruncate(open("/etc/passwd", O_CREAT | O_WRONLY, 0644), 65536));
	else
		fail("no such thing");
}

static const struct {
	const char *name;
	void (*run)(const char *argument);
} probes[] = {
	{ "exit", exit_with },
	{ "say", say },
	{ "wait", wait_for_ever },
	{ "cat", copy_input },
	{ "write", write_file },
	{ "missing", is_missing },
	{ "chmod", change_mode },
	{ "passwd", passwd_become },
	{ "calls", probe_calls },
	{ "plain-calls", probe_plain_calls },
	{ "sockets", probe_sockets },
	{ "ioctls", probe_ioctls },
	{ "personality", probe_personality },
	{ "foreign", probe_foreign },
	{ "call-cost", probe_call_cost },
	{ "capabilities", probe_capabilities },
	{ "mounts", probe_mounts },
	{ "masks", probe_masks },
	{ "network-masks", probe_network_masks },
	{ "loopback", probe_loopback },
	{ "devices", probe_devices },
	{ "terminal", probe_terminal },
	{ "limits", probe_limits },
	{ "descriptors", probe_descriptors },
	{ "init", probe_init },
	{ "escape", probe_escape },
	{ "names", probe_names },
	{ "forks", probe_forks },
	{ "watches", probe_watches },
	{ "stop-all", probe_stop_all },
	{ "tree", probe_tree },
	{ "orphans", probe_orphans },
	{ "fill", probe_fill },
	{ "own-terminal", probe_own_terminal },
	{ "no-terminal", probe_no_terminal },
	{ "fill-terminals", probe_fill_terminals },
	{ "hide-terminals", probe_hide_terminals },
	{ "run-away", probe_run_away },
	{ "limits-say", probe_limits_say },
	{ "walls-protect", probe_walls_protect },
	{ "walls-hide", probe_walls_hide },
	{ "walls-noexec", probe_walls_noexec },
	{ "walls-open", probe_walls_open },
	{ "walls-families", probe_walls_families },
	{ "walls-processes", probe_walls_processes },
	{ "walls-ioctl", probe_walls_ioctl },
	{ "walls-ioctl-list", probe_walls_ioctl_list },
	{ "walls-profile", probe_walls_profile },
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
