/*
 * What private engines left whose keepers were killed: nobody starts them again by their names, so
 * the next private engine takes it down.
 */
#pragma once

struct config;
struct instance_places;

/*
 * At the start of a private engine's keeper. Blocks, bounded. What cannot be removed is logged and
 * left to the next one; of those that live, or began just now, nothing is touched.
 */
void remains_sweep(const struct config *config, const struct instance_places *places);
