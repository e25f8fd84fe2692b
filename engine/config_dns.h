/* Who is asked for the names of sandboxes: --dns-upstream, else the host's resolv.conf. */
#pragma once

#include <stdint.h>
#include <sys/socket.h>

enum { UPSTREAMS_MAX = 3, UPSTREAM_TEXT_BYTES = 64 };

struct upstream {
	struct sockaddr_storage address;
	socklen_t bytes;
	char text[UPSTREAM_TEXT_BYTES]; /* for people */
};

struct upstreams {
	uint32_t count;
	struct upstream all[UPSTREAMS_MAX];
};

/*
 * "192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]:5353"; NULL: the nameservers of the
 * host's /etc/resolv.conf, which may be none. -EINVAL: it is none of these.
 */
int upstreams_read(const char *option, struct upstreams *ret);
