/*
 * An operation on a file from the inside: shared by file.c, which runs it, file_wish.c, which
 * checks what is asked, and file_talk.c, which speaks with its helper and says how it ended.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/flow.h"
#include "engine/base/timer.h"
#include "engine/request/inlet.h"
#include "engine/request/outlet.h"
#include "engine/sandbox/sandbox.h"
#include "backends/guest/protocol.h"

struct request;

enum {
	FILE_PACKET_BYTES = sizeof(struct guest_row) + 2 * GUEST_NAME_BYTES_MAX,
	FILE_STREAM_IN = 0, /* numbers of the streams, as an exec's */
	FILE_STREAM_OUT = 1,
};

struct file {
	struct flow flow;
	struct sandbox *sandbox;
	struct file *next, **link;
	struct part *part; /* NULL: its request ended */
	struct run *run;
	struct run_spec spec;
	struct guest_ask ask;
	bool takes_input, sends_output;
	int helper_fds[3];
	int control_fd, out_fd;
	struct inlet inlet;
	struct outlet outlet;
	struct io_op packet_op;
	char *packet; /* FILE_PACKET_BYTES, and one more to see what is too long */
	bool receiving, asking, outlet_open, outlet_over, silent; /* silent: no more packets */
	bool started, run_over, cut;
	bool committed, hurries; /* it may take effect; it has only a moment left for that */
	uint32_t rows;
	struct guest_done done; /* checked; packet 0: none yet */
	struct status cut_status;
	const char *failed_step;
	/* What the flow waits for; it is resumed by file_settle(). */
	bool (*is_settled)(const struct file *file);
	struct timer limit;
	char user[USER_BYTES_MAX];
};

/* Something changed: the flow goes on if that is what it waited for. */
void file_settle(struct file *file);
/* It ends here with this status, unless it ended before; its process is killed. */
void file_cut(struct file *file, const struct status *status);

/* ---- file_wish.c ---- */

/* A field of the request that cannot be. error: negative. */
struct status file_invalid(const char *field, int error);
/* The request, into a file that is new; OK: it has its run. */
struct status file_prepare(struct file *file, const struct request *request);

/* ---- file_talk.c ---- */

/* The request to the helper, before it starts. */
int file_ask(struct file *file, const char *path, const char *to);
/* All input was written: what was received takes effect. */
void file_commit(struct file *file);
/* Take the next packet. */
void file_receive(struct file *file);
/* To its request, if that still listens, and to the record. error: of its flow. */
void file_report(struct file *file, int error);
