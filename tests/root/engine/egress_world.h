/* Namespaces that play a host and the internet, for test_engine_egress.c. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define HOST	 "198.51.100.2"
#define INTERNET "203.0.113.10"
#define OTHER	 "203.0.113.20"
#define NAMES	 "203.0.113.53" /* where names are asked */
#define RANGE	 "10.200.0.0/16"

#define HOST6	  "2001:db8:1::2"
#define INTERNET6 "2001:db8:2::10"
#define OTHER6	  "2001:db8:2::20"
#define RANGE6	  "fd00:d5ec::/64"

/* A shell's command; what it fails with is noted. */
bool run(const char *command);
/* The calling process is the host from here on. */
bool world_make(pid_t *ret_internet);
/*
 * Says to whoever connects where they come from. A process of its own, in the namespace of `world`
 * (0: this one), as long as the test lives.
 */
pid_t server_start(pid_t world, const char *address, unsigned short port);
/* Likewise; takes what comes. */
pid_t sink_start(pid_t world, const char *address, unsigned short port);
