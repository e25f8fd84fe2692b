/*
 * What the engine and the file helper say to each other. The helper runs inside a sandbox, so the
 * engine takes everything it says for hostile; the helper believes the engine.
 *
 * The helper is started with three descriptors: 0 is what a file is to hold (raw bytes), 1 is what
 * a file holds (raw bytes), 2 a SOCK_SEQPACKET socket for packets, one of these structs each:
 *
 *	engine -> helper   one guest_ask, before it starts; for what takes input one guest_commit,
 *			   after the last byte. The socket's end instead of it: nothing happened.
 *	helper -> engine   any number of guest_row, then one guest_done, after the last byte of 1.
 */
#pragma once

#include <stdint.h>

#include <dsec/types.h>

enum {
	GUEST_PATH_BYTES_MAX = 32 << 10, /* of one path, without a NUL */
	GUEST_NAME_BYTES_MAX = 4096,	 /* of a row's name, and of its target; longer are cut */
	GUEST_ROWS_MAX = 4096,		 /* of one page of a list */
	GUEST_REFUSALS_MAX = 100,	 /* rows that name what was left out; more are counted */
	GUEST_ASK_BYTES_MAX = 128 + 2 * GUEST_PATH_BYTES_MAX,
};

enum guest_packet { GUEST_ASK = 1, GUEST_COMMIT = 2, GUEST_ROW = 3, GUEST_DONE = 4 };

/* Where it failed; guest_step_name(). */
enum guest_step {
	GUEST_STEP_NONE,
	GUEST_STEP_ASK,
	GUEST_STEP_PATH, /* the way to the file's folder */
	GUEST_STEP_OPEN,
	GUEST_STEP_READ,
	GUEST_STEP_WRITE,
	GUEST_STEP_COMMIT,
	GUEST_STEP_MKDIR,
	GUEST_STEP_REMOVE,
	GUEST_STEP_RENAME,
	GUEST_STEP_ARCHIVE,
	GUEST_STEP_WATCH,
	GUEST_STEP_COUNT,
};

struct guest_ask {
	uint32_t packet, size; /* GUEST_ASK, of this struct */
	uint32_t verb, flags;  /* enum dsec_file_verb, enum dsec_file_flag */
	uint32_t mode;	       /* with DSEC_FILE_MODE */
	uint32_t limit;	       /* of rows */
	uint64_t offset, bytes_max;
	uint32_t path_bytes, to_bytes; /* follow this struct, without NULs */
};

struct guest_commit {
	uint32_t packet, size;
	uint64_t bytes; /* that were written to 0 */
};

struct guest_row {
	uint32_t packet, size;
	uint32_t type, reason; /* enum dsec_file_type, enum dsec_file_reason */
	uint32_t error;	       /* errno, for DSEC_FILE_REASON_FAILED, _ATTRIBUTES */
	uint32_t mode, uid, gid;
	uint64_t links, bytes, disk_bytes;
	int64_t mtime_ns;
	uint32_t name_bytes, target_bytes; /* follow this struct */
	uint32_t change, reserved;	   /* bits of enum dsec_file_change */
};

struct guest_done {
	uint32_t packet, size;
	uint32_t error, step; /* errno, enum guest_step */
	uint32_t more;	      /* a list: there are more names */
	uint32_t reserved;
	uint64_t bytes;	  /* of content, read or written */
	uint64_t entries; /* of an archive, a list, a removal */
	uint64_t left_out;
};

_Static_assert(sizeof(struct guest_ask) == 48, "no padding");
_Static_assert(sizeof(struct guest_commit) == 16, "no padding");
_Static_assert(sizeof(struct guest_row) == 80, "no padding");
_Static_assert(sizeof(struct guest_done) == 48, "no padding");
