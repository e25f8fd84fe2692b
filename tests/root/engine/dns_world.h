/* A server of names for tests of the resolver: a process of its own, in the internet's. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* What it was asked, as it writes it down. */
struct dns_log {
	uint32_t asked;
	char last[256];
};

/*
 * Answers at port 53 of `address`, by UDP and TCP, as long as the test lives:
 *
 *	api.example, edge.example	INTERNET
 *	front.example			OTHER
 *	www.mirror.example		an alias of edge.example
 *	rebind.example			169.254.169.254, 127.0.0.1, 10.200.0.1
 *	mixed.example			127.0.0.1 and INTERNET
 *	big.example			by TCP alone: OTHER 39 times, and INTERNET
 *	slow.example			nothing
 *	others				there is no such name
 *
 * Before each answer to www.mirror.example comes one with another id, that says OTHER.
 */
pid_t dns_start(pid_t world, const char *address, struct dns_log **ret);
