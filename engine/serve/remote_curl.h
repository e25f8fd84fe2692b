/*
 * libcurl's multi interface on a shard's ring: its sockets are polls, its time is a timer. Nothing
 * waits: names are looked up by a thread of libcurl's (Debian builds it so).
 */
#pragma once

#include <curl/curl.h>

#include "engine/base/timer.h"

struct io;

struct remote_curl {
	CURLM *multi;
	struct io *io;
	struct timers *timers;
	struct timer timer;
	/* A transfer is over, and was taken out of `multi`. Never from within libcurl. */
	void (*ended)(struct remote_curl *curl, CURL *easy, CURLcode code);
};

/* io, timers and ended stand. -ENOTSUP: this libcurl cannot look up names beside the loop. */
int remote_curl_open(struct remote_curl *curl);
/* No transfer is under way. */
void remote_curl_close(struct remote_curl *curl);
