/*
 * A server on loopback that lies: how it answers for a blob, the first byte of its name says. And
 * a real one, nginx.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum lie {
	LIE_NONE,
	LIE_WHOLE, /* 200 and all of it, whatever range was asked for */
	LIE_OTHER_RANGE,
	LIE_LONGER_RANGE,
	LIE_SHORTER_RANGE, /* not at the blob's end */
	LIE_NO_RANGE,	   /* 206 that does not say of what */
	LIE_TWO_RANGES,
	LIE_CUT,  /* fewer bytes than promised, then the end */
	LIE_MORE, /* more bytes than the range has */
	LIE_HANG,
	LIE_DRIP, /* a byte now and then */
	LIE_GARBAGE,
	LIE_RESET,
	LIE_HEAD,  /* headers without end */
	LIE_HINTS, /* answers that are none yet, without end */
	LIE_MISSING,
	LIE_FORBIDDEN,
	LIE_BUSY,
	LIE_REDIRECT, /* to a folder of its own that is called away */
	LIE_PAST,     /* 416 */
	LIE_PACKED,   /* in an encoding that was not asked for */
	LIE_UNKNOWN,  /* 200 that does not say how long it is */
	LIE_LARGER,   /* of a blob that is larger */
	LIE_SMALLER,  /* 200 of a smaller one */
	LIES,
};

enum { SERVER_BLOB_BYTES = 300000 };

struct server;

struct server *server_new(void);
void server_free(struct server *server);
uint16_t server_port(const struct server *server);
/* Of all its life: connections; whether anybody followed a redirect. */
unsigned server_connections(struct server *server);
bool server_was_followed(struct server *server);
/* The bytes of a blob: those of blob_byte() of remote_loop.h. */
void server_fill(uint8_t blob, uint64_t offset, void *ret, uint32_t bytes);

struct nginx {
	int pid;
	uint16_t port, tls_port;
	char path[64]; /* its folder: "ca.pem", blobs/sha256 */
};

/* false: there is none here. It wants "Authorization: Bearer image-reader.example". */
bool nginx_start(struct nginx *ret);
void nginx_stop(const struct nginx *nginx);
/* The file of a blob of nginx' folder. */
void nginx_blob_path(const struct nginx *nginx, uint8_t blob, char ret[256]);
