/*
 * Runs inside sandboxes, for names. Whoever resolv.conf names is asked.
 *
 *	ask NAME [tcp]		the reply's code, "cut", and its addresses; or "silent"
 *	flood NAME COUNT	asks so often, and does not listen
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { MESSAGE_BYTES = 4096, WAIT_S = 10 };

static struct sockaddr_in server(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(53) };
	char line[256], address[64] = "";
	FILE *file = fopen("/etc/resolv.conf", "r");

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "nameserver %63s", address) == 1)
			break;
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
		printf("nobody to ask\n");
		exit(2);
	}
	return at;
}

static size_t query_make(uint8_t *to, uint16_t id, const char *name)
{
	static const uint8_t tail[] = { 0, 0, 1, 0, 1 };
	uint8_t *at = to + 12;

	memset(to, 0, 12);
	to[0] = (uint8_t)(id >> 8);
	to[1] = (uint8_t)id;
	to[2] = 1;
	to[5] = 1;
	while (*name) {
		const size_t bytes = strcspn(name, ".");

		*at++ = (uint8_t)bytes;
		memcpy(at, name, bytes);
		at += bytes;
		name += bytes + (name[bytes] == '.');
	}
	memcpy(at, tail, sizeof tail);
	return (size_t)(at - to) + sizeof tail;
}

/* The resolver's answers have one record after the other, 16 bytes each. */
static void reply_print(const uint8_t *reply, size_t bytes, size_t question_bytes)
{
	const size_t count = (size_t)reply[6] << 8 | reply[7];

	printf("%d%s", reply[3] & 15, reply[2] & 2 ? " cut" : "");
	for (size_t i = 0; i < count && question_bytes + 16 * (i + 1) <= bytes; i++) {
		const uint8_t *a = reply + question_bytes + 16 * i + 12;

		printf(" %d.%d.%d.%d", a[0], a[1], a[2], a[3]);
	}
	printf("\n");
}

static int ask(const char *name, int is_tcp)
{
	const struct sockaddr_in at = server();
	const struct timeval wait = { .tv_sec = WAIT_S };
	uint8_t query[2 + 512], reply[2 + MESSAGE_BYTES];
	const size_t bytes = query_make(query + 2, 77, name);
	int fd = socket(AF_INET, is_tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
	const uint8_t *from = is_tcp ? query : query + 2;
	ssize_t got;

	query[0] = (uint8_t)(bytes >> 8);
	query[1] = (uint8_t)bytes;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	if (connect(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
	    send(fd, from, bytes + (is_tcp ? 2 : 0), 0) < 0) {
		perror("ask");
		return 1;
	}
	got = is_tcp ? recv(fd, reply, 2, MSG_WAITALL) : 2;
	if (got == 2)
		got = recv(fd, reply, is_tcp ? (size_t)reply[0] << 8 | reply[1] : sizeof reply,
			   is_tcp ? MSG_WAITALL : 0);
	if (got < 12)
		printf("silent\n");
	else
		reply_print(reply, (size_t)got, bytes);
	return 0;
}

static int flood(const char *name, int count)
{
	const struct sockaddr_in at = server();
	uint8_t query[512];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	for (int i = 0; i < count; i++) {
		const size_t bytes = query_make(query, (uint16_t)i, name);

		(void)!sendto(fd, query, bytes, MSG_DONTWAIT, (const struct sockaddr *)&at,
			      sizeof at);
	}
	printf("flooded\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "ask"))
		return ask(argv[2], argc > 3);
	if (argc == 4 && !strcmp(argv[1], "flood"))
		return flood(argv[2], atoi(argv[3]));
	fprintf(stderr, "ask NAME [tcp], flood NAME COUNT\n");
	return 2;
}
