/*
 * What runs in the sandboxes of these tests: a static program of several names. `payload WHAT [N]`:
 * exit N; sleep N seconds; out N bytes to stdout; errors N bytes to stderr; drain stdin to its end
 * and write how much; closed: close stdin unread and wait N milliseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void bytes_write(int fd, long count)
{
	char block[4096];

	memset(block, 'x', sizeof block);
	while (count > 0) {
		ssize_t wrote = write(fd, block, count < 4096 ? (size_t)count : sizeof block);

		if (wrote <= 0)
			exit(1);
		count -= wrote;
	}
}

static long bytes_drain(void)
{
	char block[4096];
	long count = 0;
	ssize_t got;

	while ((got = read(0, block, sizeof block)) > 0)
		count += got;
	return count;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "exit";
	long n = argc > 2 ? atol(argv[2]) : 0;

	if (!strcmp(what, "sleep"))
		return sleep((unsigned)n) != 0;
	if (!strcmp(what, "out"))
		bytes_write(1, n);
	else if (!strcmp(what, "errors"))
		bytes_write(2, n);
	else if (!strcmp(what, "drain"))
		printf("%ld\n", bytes_drain());
	else if (!strcmp(what, "closed"))
		return close(0) || usleep((unsigned)n * 1000);
	else
		return (int)n;
	return 0;
}
