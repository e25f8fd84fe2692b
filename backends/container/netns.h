/* Network namespaces of sandboxes: what the worker does with /nets/N of the vault. */
#pragma once

#include <stdint.h>

struct worker;

/*
 * The caller is in the namespace and sees it in proc_fd. System calls only. Hides what /proc/net
 * says of sockets: the mode lives in the namespace's own entry, so it holds for every mount of proc
 * and only the host's root can take it back.
 */
long netns_mask(int proc_fd);

/* The requests of these names; see launch.h. */
long network_make(struct worker *w);
long network_prove(struct worker *w);
long network_drop(struct worker *w);
long port_look(struct worker *w);
long port_connect(struct worker *w);

/*
 * netns_shared.c. The worker is in a namespace that is furnished: many sandboxes may live in it
 * from now on.
 */
long shared_furnish(struct worker *w);
/* Into the request's sandbox's addresses, of 4 and 16 bytes, in network order. */
void shared_addresses(const struct worker *w, uint32_t ret4[static 1], uint32_t ret6[static 4]);

/* Of the worker's own open /proc/sys/.. as it is in its namespace. */
long setting_write(int proc_fd, const char *path, const char *value);

/* netns_egress.c. The worker is in the request's, whose descriptor it is, and stays there. */
long egress_make(struct worker *w, int ns_fd);
long egress_drop(struct worker *w); /* fine where there is none */
/* What went through the way out of the request's, into its reply. */
long egress_count(struct worker *w);

/* A descriptor of the request's; the worker is in the vault. */
long network_open(struct worker *w);
/* Into the request's and back; the latter cannot fail: a worker that is stuck inside ends. */
long network_enter(struct worker *w, uint32_t step);
void network_leave(struct worker *w);
/* Into one that nobody ever was in, and that goes when it is left. */
long network_enter_new(struct worker *w);
