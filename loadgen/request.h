/* The four requests that load is made of: how each is asked, and what its events must say. */
#pragma once

#include "loadgen/load.h"

#include <dsec/dsec.h>

/* Who asks: the probe is told the namespaces it must not find itself in. */
enum { REQUEST_NAMESPACES = 7, REQUEST_NAMESPACE_BYTES = 32 };

struct requester {
	struct dsec *d;
	struct dsec_queue *queue;
	const struct load_options *options;
	char namespaces[REQUEST_NAMESPACES][REQUEST_NAMESPACE_BYTES]; /* "mnt:[4026531841]" */
};

enum request_verdict { REQUEST_GOING_ON, REQUEST_OK, REQUEST_REFUSED, REQUEST_FAILED };

/* What one request came to; zeroed before it is asked. */
struct request {
	enum load_op op;
	uint64_t tag;
	int64_t ticket;
	struct dsec_id sandbox; /* CREATE gives it, the others take it */
	bool has_sandbox, is_reused;
	enum request_verdict not_created; /* what a CREATED without a sandbox said; 0: none came */
	uint32_t retry_after_ms;
	uint32_t assertions; /* PROBE: how many held */
	uint64_t timed_ns;   /* when what the scenario times had happened */
	char trouble[LOAD_TROUBLE_BYTES];
};

int requester_init(struct requester *requester, struct dsec *d, const struct load_options *options);
void requester_done(struct requester *requester);

/* Sends it; 0, -EAGAIN (no room now), or -errno. */
int request_send(const struct requester *requester, struct request *request);

/* Takes one event of this request, seen at now_ns; any but GOING_ON means that it has ended. */
enum request_verdict request_take(struct request *request, const struct dsec_event *event,
				  uint64_t now_ns);
