/* How the stand-in for 3FS's library treats reads of a blob: the first byte of its name. */
#pragma once

#include "engine/serve/remote_usrbio.h"

enum usrbio_lie {
	USRBIO_READS = 0x10,
	USRBIO_FAILS,
	USRBIO_SAYS_MORE, /* than it was asked for */
	USRBIO_TWICE,	  /* one completion */
	USRBIO_ANOTHER,	  /* a completion of what was never asked */
	USRBIO_HANGS,
	USRBIO_REFUSES,
};

/* Its "hf3fs_stand_in_hold": no read ends until it is over. */
void hf3fs_stand_in_hold(bool held);
