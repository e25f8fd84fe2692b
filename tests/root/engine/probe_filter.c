/*
 * Asks for everything that a policy's filter may refuse, with arguments that come to nothing where
 * it does not, and says what came of it: how many filters it has, how much was refused, and a
 * number that differs where any one answer does. With "names" it says which families it may have.
 * Runs in a sandbox, as its root.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FAMILIES = 48, IOCTLS = 65536, OTHER_ENTRY = 0x40000000 };

struct answers {
	uint64_t digest;
	unsigned refused;
};

static void answer_add(struct answers *answers, long r)
{
	const uint64_t error = r < 0 ? (uint64_t)errno : 0;

	answers->refused += error == EPERM || error == EAFNOSUPPORT || error == ENOSYS;
	answers->digest = (answers->digest ^ error) * 0x100000001b3ull;
}

static void sockets_ask(struct answers *answers)
{
	int fds[2];

	for (int family = 0; family < FAMILIES; family++)
		for (int type = SOCK_STREAM; type <= SOCK_RAW; type++) {
			const int fd = socket(family, type | SOCK_CLOEXEC, 0);

			answer_add(answers, fd);
			if (fd >= 0)
				(void)close(fd); /* was only asked for */
			if (socketpair(family, type, 0, fds) < 0) {
				answer_add(answers, -1);
				continue;
			}
			answer_add(answers, 0);
			(void)close(fds[0]); /* the same */
			(void)close(fds[1]);
		}
}

static void calls_ask(struct answers *answers)
{
	static const long calls[] = {
		SYS_ptrace,	   SYS_process_vm_readv,     SYS_process_vm_writev,
		SYS_kcmp,	   SYS_sched_setparam,	     SYS_sched_setscheduler,
		SYS_sched_setattr, SYS_getppid | OTHER_ENTRY
	};

	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
		answer_add(answers, syscall(calls[i], -1L, -1L, -1L, -1L, -1L, -1L));
	for (long command = 0; command < IOCTLS; command++)
		answer_add(answers, syscall(SYS_ioctl, -1L, command, 0L));
}

static unsigned filters_count(void)
{
	char line[256];
	unsigned count = 0;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof line, file))
		(void)sscanf(line, "Seccomp_filters: %u", &count);
	if (file)
		(void)fclose(file); /* was only read */
	return count;
}

static int families_say(void)
{
	for (int family = 0; family < FAMILIES; family++) {
		const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		/* What the sandbox has no network for is refused otherwise. */
		if (fd >= 0 || errno != EAFNOSUPPORT)
			printf("%d ", family);
		if (fd >= 0)
			(void)close(fd); /* was only asked for */
	}
	printf("\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct answers answers = { .digest = 0xcbf29ce484222325ull };

	if (argc == 2 && strcmp(argv[1], "names") == 0)
		return families_say();
	sockets_ask(&answers);
	calls_ask(&answers);
	printf("%u filters, %u refused, %016llx\n", filters_count(), answers.refused,
	       (unsigned long long)answers.digest);
	return 0;
}
