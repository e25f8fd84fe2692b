/*
 * The calls of port_client.h. What goes wrong in them is a noted failure.
 */
#include "tests/root/engine/port_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

/* ---- sandboxes and what runs in them ---- */

struct dsec_id private_make(struct dsec *d)
{
	return networked_make(d, DSEC_NETWORK_PRIVATE);
}

int64_t server_start(struct dsec *d, struct dsec_id id, const char *const words[], const char *user)
{
	struct command c = { .user = user };

	for (int i = 0; words[i]; i++)
		c.argv[i] = words[i];
	return command_start(d, id, &c, NULL);
}

void server_end(struct dsec *d, struct dsec_id id, int64_t ticket)
{
	sandbox_end(d, id);
	(void)ticket_end(d, ticket); /* killed */
}

/* ---- the op ---- */

struct told port_ask(struct dsec *d, struct dsec_id id, const struct dsec_port_opts *opts)
{
	struct told told = { .status.code = DSEC_LOST };
	double begun = clock_ms();
	struct dsec_event *event;
	int64_t ticket = dsec_port(d, NULL, id, opts);

	if (!expect(ticket >= 0)) {
		note("%s", dsec_error(d, ticket));
		return told;
	}
	if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
		return told;
	told.status = event->status;
	if (event->body)
		told.forward = *(const struct dsec_forward *)event->body;
	told.ms = clock_ms() - begun;
	expect(event->flags & DSEC_LAST);
	dsec_event_free(event);
	return told;
}

struct told port_wait(struct dsec *d, struct dsec_id id, uint32_t port, uint32_t wait_ms)
{
	const struct dsec_port_opts opts = { .size = sizeof opts,
					     .port = port,
					     .wait_ms = wait_ms };

	return port_ask(d, id, &opts);
}

/* ---- connections ---- */

int address_connect(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	const char *colon = strchr(address, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval limit = { .tv_sec = 30 };

	if (!colon)
		return -1;
	at.sin_port = htons((uint16_t)atoi(colon + 1));
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
		return fd;
	(void)close(fd); /* of no use */
	return -1;
}

bool text_send(int fd, const char *text)
{
	return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

int token_connect(const struct dsec_forward *forward)
{
	char line[80];
	int fd = address_connect(forward->address);

	(void)snprintf(line, sizeof line, "%s\n", forward->token);
	if (fd >= 0)
		(void)text_send(fd, line); /* what follows shows it */
	return fd;
}

ssize_t text_receive(int fd, char *text, size_t bytes)
{
	size_t filled = 0;
	ssize_t got;

	while ((got = recv(fd, text + filled, bytes - 1 - filled, 0)) > 0)
		filled += (size_t)got;
	text[filled] = '\0';
	return got < 0 ? -errno : (ssize_t)filled;
}

bool exchange(const struct dsec_forward *forward, const char *send_it, const char *answer)
{
	char text[256] = "";
	auto_close int fd = token_connect(forward);
	bool same;

	if (!expect(fd >= 0) || !expect(text_send(fd, send_it)) ||
	    !expect(shutdown(fd, SHUT_WR) == 0))
		return false;
	expect(text_receive(fd, text, sizeof text) >= 0);
	same = strcmp(text, answer) == 0;
	if (!same)
		note("\"%s\", not \"%s\"", text, answer);
	return same;
}

int64_t talk_start(struct dsec *d, struct dsec_id id)
{
	const struct command talks =
		SH("mkfifo /f; probe_net serve 4 7000 here & sleep 1000 >/f &\n"
		   "while ! probe_net reach 127.0.0.1 7000 | grep -q open; do usleep 5000; done\n"
		   "busybox nc 127.0.0.1 7000 </f >/heard 2>/dev/null\n"
		   "echo over");

	return command_start(d, id, &talks, NULL);
}

bool talk_has_begun(struct dsec *d, struct dsec_id id)
{
	auto_ran struct ran ran = shell_run(d, id, "cat /heard 2>/dev/null");

	return ran_exited(&ran, 0) && ran_output(&ran, 1)->total_bytes > 0;
}
