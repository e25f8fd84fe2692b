/* Claims about names that are shown by TLS: part of test_engine_names.c, on its engine. */
#pragma once

#include <sys/types.h>

struct engine;

/*
 * A name that TLS shows is reached, and no other at that address; what shows none is reset and
 * told; what is forwarded is whole; phases and ends cut it; who says nothing keeps nobody out, and
 * is cut.
 */
void forwarder_try(struct engine *e);

/* A server of TLS at port 443, in the namespace of `world`, as long as the test lives. */
pid_t tls_start(pid_t world, const char *address);
