/* The program `dsec` against a peer that answers as a script says; for the tests of the CLI. */
#pragma once

#include <sys/types.h>

#include "tests/unit/client_peer.h"

/* What the peer answers to an exec. */
struct script {
	struct dsec_wire_result result;
	const char *out, *out_tail, *err;
	uint32_t out_times; /* how often `out` and its tail are written; 0: once */
	bool label_is_binary;
	struct dsec_wire_status status; /* code not 0: no result */
	char seen[512];			/* argv, env, cwd, user, input of the last exec */
	uint32_t destroyed;
	struct dsec_wire_create create; /* the last one */
	struct dsec_wire_id destroyed_id;
	bool refuse;
	uint32_t refusals; /* of connections, before the first that is served */
	/* of an exec whose stdin is a stream: it is answered at the stream's end */
	struct dsec_ring_request exec;
	char exec_payload[1024], input[512];
	uint64_t input_bytes;
};

/* The sandboxes that the peer lists and creates. */
extern const struct dsec_wire_id cli_ids[3];

/* For peer_options.serve, with the script as its state. */
void cli_serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
	       const void *payload);

struct ran {
	int status;
	char out[8192], err[8192];
};

/*
 * dsec with these words, apart by one blank each. address: $DSEC_ADDRESS; NULL: none. fds: what it
 * gets as stdin, stdout and stderr; -1: closed.
 */
pid_t cli_start(const char *address, const char *words, const int fds[3]);
/* Its exit status. */
int cli_await(pid_t pid);
/* With this input; what it wrote. */
struct ran cli_run_at(const char *address, const char *input, const char *words);
/* Against an engine with this script. */
struct ran cli_run(struct script *script, const char *input, const char *words);
/* As above, over the socket alone and with descriptors of the test's own. The exit status. */
int cli_run_fds(struct script *script, const char *words, const int fds[3]);
