/*
 * The program that the CLI's tests run in sandboxes: it does what its first argument says. Built
 * statically by test_cli_engine.py, since its image holds nothing else.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int copy(void)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(0, bytes, sizeof(bytes))) > 0) {
		if (write(1, bytes, (size_t)n) != n)
			return 1;
	}
	return n < 0;
}

static int show(int argc, char **argv)
{
	char folder[4096];
	const char *a = getenv("A");

	for (int at = 2; at < argc; at++)
		printf("%s|", argv[at]);
	printf("%s|%s|%u|%u\n", a ? a : "-", getcwd(folder, sizeof(folder)), getuid(), getgid());
	fprintf(stderr, "to stderr\n");
	return 0;
}

static int letters(long bytes)
{
	while (bytes-- > 0)
		putchar('a');
	return fflush(stdout) == EOF;
}

/* Until nobody reads it any more. */
static int forever(void)
{
	while (puts("on") >= 0 && fflush(stdout) == 0)
		continue;
	return 1;
}

static int slow(const char *seconds)
{
	(void)write(1, "begun\n", 6);
	sleep(seconds ? (unsigned)atoi(seconds) : 1);
	(void)write(1, "ended\n", 6);
	return 7;
}

static void tidy_up(int number)
{
	(void)number;
	(void)write(1, "tidied\n", 7);
	_exit(0);
}

static void number_say(int number)
{
	const char digits[] = { (char)('0' + number / 10), (char)('0' + number % 10), '\n' };

	(void)write(1, digits, sizeof(digits));
	if (number == SIGTERM)
		_exit(3);
}

/* Which signals it gets, until SIGTERM. */
static int signals(void)
{
	(void)signal(SIGINT, number_say);
	(void)signal(SIGHUP, number_say);
	(void)signal(SIGTERM, number_say);
	(void)write(1, "on\n", 3);
	for (;;)
		pause();
}

/* Ends well when it is told to. */
static int tidy(void)
{
	(void)signal(SIGTERM, tidy_up);
	for (;;)
		pause();
}

/* Tells whoever connects to ::1 what it said, after it has ended. */
static int serve(unsigned short port)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6,
				   .sin6_port = htons(port),
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int server = socket(AF_INET6, SOCK_STREAM, 0), fd;

	if (bind(server, (struct sockaddr *)&at, sizeof(at)) || listen(server, 8))
		return 1;
	while ((fd = accept(server, NULL, NULL)) >= 0) {
		char bytes[4096];
		ssize_t all = 0, n;

		while ((n = read(fd, bytes + all, sizeof(bytes) - (size_t)all)) > 0)
			all += n;
		if (write(fd, bytes, (size_t)all) != all)
			return 1;
		close(fd);
	}
	return 1;
}

/* ---- on a terminal ---- */

static void size_say(void)
{
	struct winsize size = { 0 };

	(void)ioctl(0, TIOCGWINSZ, &size);
	printf("%ux%u\n", size.ws_row, size.ws_col);
}

static void signal_say(int number)
{
	if (number == SIGWINCH)
		size_say();
	else
		printf("signal %d\n", number);
	fflush(stdout);
}

/* Says back what it is told, and which signals it gets. */
static int terminal(void)
{
	struct sigaction action = { .sa_handler = signal_say, .sa_flags = SA_RESTART };
	char line[256];

	if (!isatty(0) || !isatty(1) || !isatty(2))
		return 98;
	(void)sigaction(SIGWINCH, &action, NULL);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGQUIT, &action, NULL);
	printf("%s ", getenv("TERM") ? getenv("TERM") : "");
	size_say();
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "exit ", 5))
			return atoi(line + 5);
		printf("%s", line);
		fflush(stdout);
	}
	printf("end\n");
	return 5;
}

static int limits(void)
{
	struct rlimit files;

	(void)getrlimit(RLIMIT_NOFILE, &files);
	printf("nofile %llu:%llu\n", (unsigned long long)files.rlim_cur,
	       (unsigned long long)files.rlim_max);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "copy"))
		return copy();
	if (!strcmp(what, "show"))
		return show(argc, argv);
	if (!strcmp(what, "letters"))
		return letters(atol(argv[2]));
	if (!strcmp(what, "terminal"))
		return terminal();
	if (!strcmp(what, "limits"))
		return limits();
	if (!strcmp(what, "forever"))
		return forever();
	if (!strcmp(what, "slow"))
		return slow(argv[2]);
	if (!strcmp(what, "signals"))
		return signals();
	if (!strcmp(what, "tidy"))
		return tidy();
	if (!strcmp(what, "exit"))
		return atoi(argv[2]);
	if (!strcmp(what, "abort"))
		abort();
	if (!strcmp(what, "serve"))
		return serve((unsigned short)atoi(argv[2]));
	if (!strcmp(what, "socket"))
		return socket(AF_INET, SOCK_STREAM, 0) < 0;
	if (!strcmp(what, "sleep"))
		return (int)sleep(3600);
	return 99;
}
