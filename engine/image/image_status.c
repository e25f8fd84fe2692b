/*
 * Why there is no image, as clients are told. Called by what is made on an image: sandboxes and
 * functions.
 */
#include "engine/image/image.h"

#include <errno.h>

#include "dsec/ring.h"

static const struct {
	int error;
	uint32_t code; /* the caller's fault; 0: not theirs, and the error says which */
	const char *detail;
} reasons[] = {
	{ ENOENT, DSEC_ABSENT, "no such image; see the engine's --images directory" },
	{ EINVAL, DSEC_INVALID,
	  "letters, digits and . _ - : in parts separated by /; + joins several" },
	{ E2BIG, DSEC_INVALID, "at most 128 images joined by +, and what they are of" },
	{ ENODATA, DSEC_INVALID, "one of those joined by + is not of the store: import it anew" },
	{ ETIMEDOUT, DSEC_DEADLINE, "the composition took longer to make than --compose-timeout" },
	{ EPIPE, 0, "what was making the composition was killed: see the log" },
	{ EMEDIUMTYPE, DSEC_FAILED, "the image's file is not EROFS, damaged or cut off" },
	{ EBADMSG, DSEC_FAILED, "the image's file is not EROFS, damaged or cut off" },
	{ ETXTBSY, DSEC_CONFLICT, "its file was written to in place, under sandboxes that use it" },
	{ ENOMEDIUM, DSEC_FAILED, "contents of the image are not on this node: see the log" },
	{ ENOTBLK, 0, "no image can be mounted from that file system: --images on ext4 or xfs" },
};

struct status image_status(const char *table, int error)
{
	struct status s = status_of_errno(error, table, "image");

	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
		if (reasons[i].error != -error)
			continue;
		s.detail = reasons[i].detail;
		if (!reasons[i].code)
			break;
		s.code = reasons[i].code;
		s.blame = DSEC_BLAME_CALLER;
	}
	return s;
}
