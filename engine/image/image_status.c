/*
 * Why there is no image, as clients are told. Called by what is made on an image: sandboxes and
 * functions.
 */
#include "engine/image/image.h"

#include <errno.h>
#include <stdio.h>

#include "dsec/ring.h"

static const struct {
	int error;
	uint32_t code; /* 0: another time, or for another shard, it may be well */
	uint32_t blame;
	const char *detail;
} reasons[] = {
	{ ENOENT, DSEC_ABSENT, DSEC_BLAME_CALLER,
	  "no such image; see the engine's --images directory" },
	{ EINVAL, DSEC_INVALID, DSEC_BLAME_CALLER,
	  "letters, digits and . _ - : in parts separated by /; + joins several" },
	{ E2BIG, DSEC_INVALID, DSEC_BLAME_CALLER,
	  "at most 128 images joined by +, and what they are of" },
	{ ENODATA, DSEC_INVALID, DSEC_BLAME_CALLER,
	  "one of those joined by + is not of the store: import it anew" },
	{ ETIMEDOUT, DSEC_DEADLINE, DSEC_BLAME_CALLER,
	  "the composition took longer to make than --compose-timeout" },
	{ EPIPE, 0, DSEC_BLAME_PLATFORM,
	  "what was making the composition was killed: see the log" },
	{ EMEDIUMTYPE, DSEC_FAILED, DSEC_BLAME_PLATFORM,
	  "the image's file is not EROFS, damaged or cut off" },
	{ EBADMSG, DSEC_FAILED, DSEC_BLAME_PLATFORM,
	  "the image's file is not EROFS, damaged or cut off" },
	{ ETXTBSY, DSEC_CONFLICT, DSEC_BLAME_CALLER,
	  "its file was written to in place, under sandboxes that use it" },
	{ ENOMEDIUM, DSEC_FAILED, DSEC_BLAME_PLATFORM,
	  "contents of the image are not on this node: see the log" },
	{ ENOTBLK, 0, DSEC_BLAME_PLATFORM,
	  "no image can be mounted from that file system: --images on ext4 or xfs" },
};

struct status image_status(const char *table, int error)
{
	struct status s = status_of_errno(error, table, "image");

	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
		if (reasons[i].error != -error)
			continue;
		s.detail = reasons[i].detail;
		s.code = reasons[i].code ? reasons[i].code : s.code;
		s.blame = (uint16_t)reasons[i].blame;
	}
	return s;
}

struct status image_want_status(const struct image_want *want, int error, const char *table,
				char *detail, size_t bytes)
{
	struct status s = image_status(table, error);

	if (error != -ENOMEDIUM)
		return s;
	(void)snprintf(detail, bytes,
		       "contents of the image are not on this node: segment %.12s, see the log",
		       want->missing);
	s.detail = detail;
	return s;
}

bool image_error_is_final(int error)
{
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (reasons[i].error == -error)
			return reasons[i].code != 0;
	return false;
}
