/*
 * Images: root file systems that sandboxes share. A part of dsec.h, whose contracts hold here too.
 */
#pragma once

#include <dsec/dsec.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct dsec_image_opts {
	uint32_t size, verb; /* enum dsec_image_verb */
	/*
	 * import: what the stream is a tar of: NULL (as its first name says), "tree" (a root file
	 * system), or "archive" (a docker archive or an OCI layout).
	 */
	const char *source;
	const char
		*name; /* letters, digits and . _ - : in parts separated by /; not for list, gc */
	/*
	 * compose: names of images, the lowest first, at most 128; push: one target; pull: one
	 * source, "oci:DIR[:TAG]", "http://ADDRESS#TAG" or a name in the engine's remote; pack:
	 * "wipe:RULE" or "wipe:/GLOB" (none: all rules), "scan:CANARY".
	 */
	const struct dsec_bytes *layers;
	uint32_t layer_count, flags; /* enum dsec_image_flag */
	/*
	 * import of an archive that holds several images: which one, as the archive calls it
	 * (org.opencontainers.image.ref.name, or one of RepoTags). NULL: the only one.
	 */
	const char *tag;
	struct dsec_id sandbox; /* pack */
};

/* Body of an image's DSEC_EV_ROW, and of what made one its DSEC_EV_DONE. UINT64_MAX: unknown. */
struct dsec_image_row {
	uint32_t size, users; /* users: sandboxes that run on it; UINT32_MAX: not told */
	uint64_t bytes;	      /* of its file */
	uint64_t content_bytes, files, age_ms;
	uint32_t layers;
	uint32_t dropped_nodes, dropped_xattrs; /* import: what a sandbox must not have */
	uint32_t reserved;
	struct dsec_bytes name, digest, created, source; /* empty: unknown */
	uint64_t new_bytes, shared_bytes; /* import, …: contents stored now, or there before */
	/* list, inspect: of the segments that hold its contents: all, and how much is here */
	uint64_t segment_bytes, local_bytes;
};

/* Body of a DSEC_EV_PROGRESS. */
struct dsec_progress {
	uint32_t size, layers, layers_total, reserved; /* layers_total 0: not known yet */
	uint64_t bytes, files;			       /* unpacked so far */
	uint64_t read_bytes; /* taken from the archive, where that is before unpacking */
};

/*
 * Images. import: feed the archive with dsec_input(), as it is, and end it with no bytes; events:
 * DSEC_EV_PROGRESS, DSEC_EV_DONE. It replaces an image of that name at once and whole; sandboxes
 * keep what they have. Cancelled, refused, or its connection gone: nothing is left of it.
 *
 * list: a DSEC_EV_ROW per image, in order of names. inspect: DSEC_EV_DATA with the image's record
 * (JSON: digest, source, created, content_bytes, files, layers, user, cwd, env, entrypoint, cmd,
 * manifests; where there is one tenant also contents, a list of its segments: digest, bytes, where
 * they are, local_bytes, and images, how many name it; none for an image that was not imported),
 * then its DSEC_EV_ROW. remove: DSEC_CONFLICT while
 * sandboxes use it.
 *
 * compose, gc, verify, push, pull, pack, hotset: DSEC_EV_PROGRESS, as DSEC_EV_DATA a report (JSON,
 * at most 64 KiB) where there is one, also of what failed; DSEC_EV_DONE with the image's row where
 * one was made. They are cancelled as an import is. gc, verify and hotset are of all images, push
 * and pull of the engine's machine: DSEC_DENIED to tenants where an engine has several.
 */
int64_t dsec_image(struct dsec *d, const struct dsec_call *call,
		   const struct dsec_image_opts *opts);

/* Body of a fork's DSEC_EV_DONE. */
struct dsec_forked {
	uint32_t size, reserved;
	uint64_t paused_us; /* so long nobody ran in the source */
};

/*
 * So many sandboxes (opts->count; NULL: one; all else is zero: it is the source's) whose files
 * begin as the source's are: all that it wrote is a layer that they share. No process is copied;
 * each has an id, a host name, a network and ids of its own, and begins in no phase, under the
 * policy that the source has now. The source is held still for a moment. Events as of
 * dsec_create().
 */
int64_t dsec_fork(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_create_opts *opts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
