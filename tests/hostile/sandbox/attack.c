/*
 * Runs inside sandboxes and attacks what it finds: `attack NAME [ARGUMENT]`. Most attacks go on
 * until they are killed; they say what they could do when they know it. Bounded by the sandbox's
 * limits only: never to be run outside of one.
 */
#include "tests/hostile/sandbox/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/* Every process makes more, and never stops trying. */
static void bomb_forks(const char *argument)
{
	(void)argument;
	say("bomb");
	for (;;)
		(void)fork();
}

/* The same, each in a session of its own, parents gone: nothing but the sandbox holds them. */
static void bomb_sessions(const char *argument)
{
	(void)argument;
	say("bomb");
	for (;;) {
		if (fork() == 0) {
			(void)setsid();
			if (fork() > 0)
				_exit(0);
		}
	}
}

static void signal_loop(const char *argument)
{
	const int number = atoi(argument);

	say("killing");
	for (;;) {
		(void)kill(-1, number);
		(void)kill(1, number);
	}
}

/* Copies that end themselves by a crash, one after the other. */
static void crash_loop(const char *argument)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	struct rlimit is;

	(void)setrlimit(RLIMIT_CORE, &all);
	if (getrlimit(RLIMIT_CORE, &is) < 0 || is.rlim_cur > 1)
		say("core files allowed");
	(void)chdir("/tmp");
	for (int i = 0; i < atoi(argument); i++) {
		pid_t pid = fork();
		int status = 0;

		if (pid == 0)
			abort();
		(void)waitpid(pid, &status, 0);
		if (WCOREDUMP(status))
			say("core dumped");
	}
}

/* Files in folders in folders, until nothing more fits. */
static void fill_with_files(const char *argument)
{
	char name[32];
	long files = 0;
	int depth = 0;

	(void)argument;
	(void)chdir("/tmp");
	for (;;) {
		int fd;

		(void)snprintf(name, sizeof name, "%ld", files);
		if (files % 64 == 0) {
			if (mkdir(name, 0700) < 0 || chdir(name) < 0)
				break;
			depth++;
		}
		fd = open(name, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			break;
		close(fd);
		files++;
	}
	printf("files %ld depth %d %s\n", files, depth, strerrorname_np(errno));
}

static void sync_loop(const char *argument)
{
	(void)argument;
	say("syncing");
	for (;;)
		sync();
}

static void spin_loop(const char *argument)
{
	(void)argument;
	say("spinning");
	for (;;)
		(void)getppid();
}

/* Short lines as fast as they go, on both streams. */
static void flood_output(const char *argument)
{
	(void)argument;
	for (;;)
		if (write(1, "out\n", 4) != 4 || write(2, "err\n", 4) != 4)
			_exit(0);
}

/* Leaves a child that keeps the streams open, writes to them and reads from them for ever. */
static void hold_streams(const char *argument)
{
	(void)argument;
	if (fork() > 0) {
		say("left");
		return;
	}
	(void)setsid();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)fcntl(1, F_SETPIPE_SZ, 1 << 20);
	int reader = open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK);
	char bytes[4096] = "x";

	for (;;) {
		(void)!write(1, bytes, sizeof bytes);
		(void)!read(reader, bytes, 1);
		usleep(1000);
	}
}

static const struct {
	const char *name;
	void (*run)(const char *argument);
} attacks[] = {
	{ "bomb-forks", bomb_forks },
	{ "bomb-sessions", bomb_sessions },
	{ "signal", signal_loop },
	{ "crash", crash_loop },
	{ "fill", fill_with_files },
	{ "sync", sync_loop },
	{ "spin", spin_loop },
	{ "flood", flood_output },
	{ "hold-streams", hold_streams },
	{ "hold-output", hold_output },
	{ "hold-input", hold_input },
	{ "take-files", take_files },
	{ "take-watches", take_watches },
	{ "take-terminals", take_terminals },
	{ "take-queues", take_queues },
	{ "take-polls", take_polls },
	{ "take-pipes", take_pipes },
	{ "take-sockets", take_sockets },
	{ "one-of-each", one_of_each },
	{ "steal-terminal", steal_terminal },
	{ "wrestle-terminal", wrestle_terminal },
	{ "capabilities", attack_capabilities },
	{ "devices", attack_devices },
	{ "bpf", attack_bpf },
	{ "filter", attack_filter },
	{ "layer", attack_layer },
	{ "enter", attack_entering },
	{ "trace", trace_all },
	{ "debug-own", debug_own },
	{ "reach", reach },
	{ "write-settings", write_settings },
	{ "see", see_others },
	{ "swap-names", swap_names },
	{ "swap-kinds", swap_kinds },
	{ "grow", grow_file },
	{ "socket", make_socket },
	{ "touch-helper", touch_helper },
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && i < sizeof attacks / sizeof *attacks; i++) {
		if (strcmp(argv[1], attacks[i].name) != 0)
			continue;
		attacks[i].run(argc > 2 ? argv[2] : "");
		return 0;
	}
	say("no such attack");
	return 2;
}
