/*
 * The inline transport: the same messages over the handshake socket. For clients that may not map
 * memory of ours, for tunnels, and for tests.
 */
#pragma once

#include <stdbool.h>

#include "dsec/ring.h"

struct channel;

void stream_open(struct channel *channel);
/* False: no room now; channel_flush_stream() is called when there is. */
bool stream_put(struct channel *channel, const struct dsec_ring_event *event, const char *payload);
/* A request is over: more may come. */
void stream_resume(struct channel *channel);
void stream_close(struct channel *channel);
