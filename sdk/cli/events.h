/* Events of an engine, for verbs that wait for them. */
#pragma once

#include "sdk/cli/session.h"

const char *topic_name(uint32_t topic);
/* 0: no such topic. "exec" is all of execs, "sandbox" all others: a mask of bits 1 << topic. */
uint64_t topics_parse(const char *text);

/*
 * Subscribes and hands over what comes, until it ends or seen() says so by a result that is not 0,
 * which is what is returned then; so is -errno, after a line on stderr. 0: it ended by itself.
 * Where the time that was asked for passed: -ETIMEDOUT, with nothing said.
 */
int events_follow(struct session *session, const struct dsec_subscribe_opts *opts,
		  int (*seen)(void *state, const struct dsec_event *event), void *state);
