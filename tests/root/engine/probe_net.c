/*
 * Runs inside sandboxes, for ports:
 *
 *	serve WHERE PORT NAME [MS]	listens after MS; tells NAME, echoes, and after the other's
 *					end says "end"
 *	sum WHERE PORT			tells who connects length and hash of what it sent
 *	pour WHERE PORT BYTES		sends that many bytes and their hash, and ends
 *	reach ADDRESS PORT		who is there: "open", or the error
 *	send ADDRESS PORT [TEXT [FROM]]	one datagram, as if from there
 *	name ADDRESS PORT		where its datagrams to there would come from
 *	sweep PORT COUNT		how many of the first COUNT addresses of `shared` are
 *					"open", "denied" or "other", IPv4 and IPv6 together
 *	hog				binds ports until it gets no more, says how many, keeps them
 *
 * WHERE: 4, 6: a loopback; 4any, 6any: a wildcard of one family; any: of both.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10, HOG_REFUSED_MAX = 64 };

static char buffer[BUFFER_BYTES];

static void must(long r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	exit(1);
}

static int listen_at(const char *where, uint16_t port)
{
	const int is_six = where[0] != '4', only = strcmp(where, "any") != 0, on = 1;
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);

	if (strcmp(where, "4") == 0)
		four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (strcmp(where, "6") == 0)
		six.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
	must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "reuse");
	if (is_six)
		must(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only), "v6only");
	must(is_six ? bind(fd, (struct sockaddr *)&six, sizeof six) :
		      bind(fd, (struct sockaddr *)&four, sizeof four),
	     "bind");
	must(listen(fd, 128), "listen");
	return fd;
}

static void send_all(int fd, const void *bytes, size_t count)
{
	const char *at = bytes;

	while (count) {
		ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);

		must(sent, "send");
		at += sent;
		count -= (size_t)sent;
	}
}

static uint64_t hash(uint64_t seed, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		seed = (seed ^ (unsigned char)bytes[i]) * 1099511628211ull;
	return seed;
}

static void echo(int fd, const char *name)
{
	ssize_t got;

	send_all(fd, name, strlen(name));
	while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
		send_all(fd, buffer, (size_t)got);
	must(got, "recv");
	send_all(fd, "end", 3);
}

static void sum(int fd)
{
	uint64_t all = 0, seed = 14695981039346656037ull;
	char text[64];
	ssize_t got;

	while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0) {
		seed = hash(seed, buffer, (size_t)got);
		all += (uint64_t)got;
	}
	must(got, "recv");
	(void)snprintf(text, sizeof text, "%llu %016llx", (unsigned long long)all,
		       (unsigned long long)seed);
	send_all(fd, text, strlen(text));
}

static void pour(int fd, uint64_t bytes)
{
	uint64_t seed = 14695981039346656037ull, state = 1;

	while (bytes) {
		size_t piece = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;

		for (size_t i = 0; i < piece; i++) {
			state = state * 6364136223846793005ull + 1442695040888963407ull;
			buffer[i] = (char)(state >> 56);
		}
		seed = hash(seed, buffer, piece);
		send_all(fd, buffer, piece);
		bytes -= piece;
	}
	(void)snprintf(buffer, sizeof buffer, "%016llx", (unsigned long long)seed);
	send_all(fd, buffer, 16);
}

static void serve(char **argv, int argc)
{
	const char *what = argv[1];
	int server, client;

	if (argc > 5)
		(void)usleep((useconds_t)atoi(argv[5]) * 1000);
	server = listen_at(argv[2], (uint16_t)atoi(argv[3]));
	while ((client = accept(server, NULL, NULL)) >= 0) {
		if (fork() == 0) {
			if (strcmp(what, "serve") == 0)
				echo(client, argv[4]);
			else if (strcmp(what, "sum") == 0)
				sum(client);
			else
				pour(client, strtoull(argv[4], NULL, 10));
			_exit(0);
		}
		(void)close(client);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static union address address_of(const char *text, uint16_t port, socklen_t *ret_bytes)
{
	union address address = { .any.sa_family = strchr(text, ':') ? AF_INET6 : AF_INET };
	const int is_six = address.any.sa_family == AF_INET6;

	address.four.sin_port = htons(port); /* where the other's is */
	*ret_bytes = is_six ? sizeof address.six : sizeof address.four;
	if (inet_pton(address.any.sa_family, text,
		      is_six ? (void *)&address.six.sin6_addr : &address.four.sin_addr) != 1)
		exit(2);
	return address;
}

static void reach(const char *text, uint16_t port)
{
	const struct timeval limit = { .tv_sec = 1 };
	socklen_t bytes;
	union address address = address_of(text, port, &bytes);
	int fd = socket(address.any.sa_family, SOCK_STREAM, 0);

	if (fd < 0) {
		printf("%s\n", strerror(errno));
		return;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	printf("%s\n", connect(fd, &address.any, bytes) < 0 ? strerror(errno) : "open");
}

static void send_one(char **argv, int argc)
{
	const char *text = argc > 4 ? argv[4] : "x";
	socklen_t bytes;
	union address address = address_of(argv[2], (uint16_t)atoi(argv[3]), &bytes), from;
	int fd = socket(address.any.sa_family, SOCK_DGRAM, 0);
	const int on = 1;

	must(fd, "socket");
	if (argc > 5) {
		from = address_of(argv[5], 0, &bytes);
		must(setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof on), "free");
		must(bind(fd, &from.any, bytes), "bind");
	}
	must(sendto(fd, text, strlen(text), 0, &address.any, bytes), "send");
}

static void name(const char *text, uint16_t port)
{
	char local[INET6_ADDRSTRLEN] = "";
	socklen_t bytes;
	union address address = address_of(text, port, &bytes);
	const int family = address.any.sa_family, fd = socket(family, SOCK_DGRAM, 0);

	must(fd, "socket");
	must(connect(fd, &address.any, bytes), "connect");
	must(getsockname(fd, &address.any, &bytes), "name");
	printf("%s\n", inet_ntop(family,
				 family == AF_INET6 ? (void *)&address.six.sin6_addr :
						      &address.four.sin_addr,
				 local, sizeof local));
}

static int connect_errno(const char *text, uint16_t port)
{
	socklen_t bytes;
	union address address = address_of(text, port, &bytes);
	int fd = socket(address.any.sa_family, SOCK_STREAM, 0), r;

	must(fd, "socket");
	r = connect(fd, &address.any, bytes) < 0 ? errno : 0;
	(void)close(fd);
	return r;
}

static void sweep(uint16_t port, unsigned count)
{
	unsigned open = 0, denied = 0, other = 0;

	for (unsigned i = 1; i <= 2 * count; i++) {
		const unsigned number = (i + 1) / 2;
		char text[64];
		int r;

		if (i % 2)
			(void)snprintf(text, sizeof text, "10.64.%u.%u", number >> 8, number & 255);
		else
			(void)snprintf(text, sizeof text, "fd5e:ec::%x", number);
		r = connect_errno(text, port);
		open += r == 0;
		denied += r == EPERM;
		other += r && r != EPERM;
	}
	printf("open %u denied %u other %u\n", open, denied, other);
}

/* For ever, or -1. */
static int port_take(unsigned port)
{
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = htons((uint16_t)port),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	must(fd, "socket");
	if (bind(fd, (const struct sockaddr *)&at, sizeof at) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

/* First those that connect() is given, which nobody gets. */
static void hog(void)
{
	struct rlimit files;
	int taken = 0, refused = 0;

	must(getrlimit(RLIMIT_NOFILE, &files), "limit");
	files.rlim_cur = files.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &files), "limit");
	for (unsigned port = 36000; port < 36000 + HOG_REFUSED_MAX; port++)
		if (port_take(port) >= 0)
			exit(3);
	for (unsigned port = 1; refused < HOG_REFUSED_MAX && port < 65536; port++) {
		int fd = port_take(port);

		taken += fd >= 0;
		refused = fd >= 0 ? 0 : refused + 1;
	}
	printf("%d\n", taken);
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "hog") == 0)
		hog();
	else if (argc > 3 && strcmp(argv[1], "sweep") == 0)
		sweep((uint16_t)atoi(argv[2]), (unsigned)atoi(argv[3]));
	else if (argc > 3 && strcmp(argv[1], "reach") == 0)
		reach(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc > 3 && strcmp(argv[1], "name") == 0)
		name(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc > 3 && strcmp(argv[1], "send") == 0)
		send_one(argv, argc);
	else if (argc > 3)
		serve(argv, argc);
	else
		return 2;
	return 0;
}
