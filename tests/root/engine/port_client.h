/*
 * What tests do with ports of sandboxes: servers in them, forwards to them, connections through
 * those.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <dsec/dsec.h>

/* A sandbox of network `private`. */
struct dsec_id private_make(struct dsec *d);
/* Its ticket is for server_end(). */
int64_t server_start(struct dsec *d, struct dsec_id id, const char *const words[],
		     const char *user);
void server_end(struct dsec *d, struct dsec_id id, int64_t ticket);

struct told {
	struct dsec_status status;
	struct dsec_forward forward;
	double ms;
};

struct told port_ask(struct dsec *d, struct dsec_id id, const struct dsec_port_opts *opts);
struct told port_wait(struct dsec *d, struct dsec_id id, uint32_t port, uint32_t wait_ms);

int address_connect(const char *address); /* -1: refused */
int token_connect(const struct dsec_forward *forward);
bool text_send(int fd, const char *text);
/* Everything to the end of the stream; -errno when it was cut. */
ssize_t text_receive(int fd, char *text, size_t bytes);
/* Sends, ends, and expects an answer. */
bool exchange(const struct dsec_forward *forward, const char *send_it, const char *answer);
/*
 * Starts a server inside, and a client of it that says "over" when their connection is; its ticket.
 * The image has probe_net.
 */
int64_t talk_start(struct dsec *d, struct dsec_id id);
bool talk_has_begun(struct dsec *d, struct dsec_id id);
