/*
 * Reads where names are asked. Called when the engine starts and by `dsecd --check`. Must hold: an
 * option that cannot be read is refused, and never replaced by what the host has.
 */
#include "engine/config_dns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_DNS = 53 };

static int port_read(const char *text, uint16_t *ret)
{
	char *end;
	const unsigned long port = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !port || port > UINT16_MAX)
		return -EINVAL;
	*ret = (uint16_t)port;
	return 0;
}

/* Address and port apart: brackets stand around an IPv6 address that has one. */
static int parts_read(const char *text, char host[INET6_ADDRSTRLEN], uint16_t *ret_port)
{
	const char *end = text + strlen(text), *colon = strrchr(text, ':');
	const char *close = strchr(text, ']');
	int r = 0;

	*ret_port = PORT_DNS;
	if (*text == '[' && close) {
		text++;
		end = close;
		if (close[1])
			r = close[1] == ':' ? port_read(close + 2, ret_port) : -EINVAL;
	} else if (colon && colon == strchr(text, ':')) {
		end = colon;
		r = port_read(colon + 1, ret_port);
	}
	if (r < 0 || end - text >= INET6_ADDRSTRLEN)
		return -EINVAL;
	(void)snprintf(host, INET6_ADDRSTRLEN, "%.*s", (int)(end - text), text); /* fits */
	return 0;
}

static int upstream_read(const char *text, struct upstream *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&ret->address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret->address;
	char host[INET6_ADDRSTRLEN];
	uint16_t port;
	int r = parts_read(text, host, &port);

	if (r < 0)
		return r;
	*ret = (struct upstream){ 0 };
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		ret->bytes = sizeof *v4;
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		ret->bytes = sizeof *v6;
	} else {
		return -EINVAL;
	}
	(void)snprintf(ret->text, sizeof ret->text, "%.*s", UPSTREAM_TEXT_BYTES - 1, text);
	return 0;
}

/* A nameserver that cannot be read, as one of a link's own, is passed over as libc does. */
static void host_read(struct upstreams *ret)
{
	FILE *file = fopen("/etc/resolv.conf", "re");
	char line[256], address[128];

	while (file && ret->count < UPSTREAMS_MAX && fgets(line, sizeof line, file))
		if (sscanf(line, "nameserver %127s", address) == 1 &&
		    upstream_read(address, &ret->all[ret->count]) == 0)
			ret->count++;
	if (file)
		(void)fclose(file); /* only read */
}

int upstreams_read(const char *option, struct upstreams *ret)
{
	int r = 0;

	*ret = (struct upstreams){ 0 };
	if (!option) {
		host_read(ret);
		return 0;
	}
	r = upstream_read(option, &ret->all[0]);
	ret->count = r == 0;
	return r;
}
