/*
 * Requests about images and policies, chosen: payloads to be freed.
 */
#pragma once

struct choices;
struct pack;

struct pack *image_choose(struct choices *c);
struct pack *policy_choose(struct choices *c);
