/*
 * A piece of long work: mail that waits for its client's turn. See shard_walk().
 */
#pragma once

#include "engine/base/io.h"
#include "engine/base/turns.h"

struct walk_turn {
	struct turn turn;
	struct mail *mail;
};
