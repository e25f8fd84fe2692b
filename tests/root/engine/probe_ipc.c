/*
 * Runs inside sandboxes: `probe_ipc make` leaves SysV and POSIX objects behind, `look` names those
 * it finds; `listen` holds an abstract socket, `connect` says whether somebody answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { KEY = 0x64736563, NAME_BYTES = 5 };

static int failures;

static void must(long r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	failures++;
}

static void make(void)
{
	must(shmget(KEY, 4096, IPC_CREAT | 0600), "shmget");
	must(semget(KEY, 1, IPC_CREAT | 0600), "semget");
	must(msgget(KEY, IPC_CREAT | 0600), "msgget");
	must(syscall(SYS_mq_open, "mark", O_CREAT | O_RDWR, 0600, NULL), "mq_open");
	must(open("/dev/shm/mark", O_CREAT | O_RDWR, 0600), "shm");
}

static void look(void)
{
	if (shmget(KEY, 0, 0) >= 0)
		printf("shared memory\n");
	if (semget(KEY, 0, 0) >= 0)
		printf("semaphores\n");
	if (msgget(KEY, 0) >= 0)
		printf("messages\n");
	if (syscall(SYS_mq_open, "mark", O_RDWR, 0, NULL) >= 0)
		printf("message queue\n");
	if (access("/dev/shm/mark", F_OK) == 0)
		printf("POSIX shared memory\n");
}

static socklen_t address_make(struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret->sun_path, "\0mark", NAME_BYTES);
	return offsetof(struct sockaddr_un, sun_path) + NAME_BYTES;
}

static void listen_for_ever(void)
{
	struct sockaddr_un address;
	socklen_t bytes = address_make(&address);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	must(bind(fd, (struct sockaddr *)&address, bytes), "bind");
	must(listen(fd, 4), "listen");
	must(open("/tmp/up", O_CREAT | O_WRONLY, 0600), "up");
	for (;;)
		pause();
}

static void connect_once(void)
{
	struct sockaddr_un address;
	socklen_t bytes = address_make(&address);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&address, bytes) == 0)
		printf("somebody answers\n");
}

/* So many sockets of the internet, which it must not get. */
static void sockets_try(int count)
{
	for (int i = 0; i < count; i++)
		if (socket(AF_INET6, SOCK_STREAM, 0) >= 0 || errno != EPERM)
			failures++;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "make"))
		make();
	else if (!strcmp(what, "look"))
		look();
	else if (!strcmp(what, "listen"))
		listen_for_ever();
	else if (!strcmp(what, "connect"))
		connect_once();
	else if (!strcmp(what, "sockets") && argc > 2)
		sockets_try(atoi(argv[2]));
	else
		return 2;
	return failures ? 1 : 0;
}
