/* Pools of objects and their handles. */
#include "engine/base/pool.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

enum { COUNT = 8 };

Test(pool, objects_are_distinct_zeroed_and_limited)
{
	struct pool pool;
	char *objects[COUNT];

	cr_assert_eq(pool_init(&pool, 20, COUNT), 0);
	for (unsigned i = 0; i < COUNT; i++) {
		objects[i] = pool_take(&pool);
		cr_assert_not_null(objects[i]);
		for (unsigned j = 0; j < 20; j++)
			cr_assert_eq(objects[i][j], 0);
		memset(objects[i], 0xff, 20);
	}
	cr_assert_eq(pool_taken(&pool), COUNT);
	cr_assert_null(pool_take(&pool));
	pool_put(&pool, objects[3]);
	cr_assert_eq(pool_taken(&pool), COUNT - 1);
	objects[3] = pool_take(&pool);
	for (unsigned j = 0; j < 20; j++)
		cr_assert_eq(objects[3][j], 0);
	pool_done(&pool);
}

Test(pool, handle_never_finds_the_successor)
{
	struct pool pool;
	pool_handle_t handle;
	void *object;

	cr_assert_eq(pool_init(&pool, 8, COUNT), 0);
	object = pool_take(&pool);
	handle = pool_handle_of(&pool, object);
	cr_assert_neq(handle, 0);
	cr_assert_eq(pool_find(&pool, handle), object);
	pool_put(&pool, object);
	cr_assert_null(pool_find(&pool, handle));
	cr_assert_eq(pool_take(&pool), object);
	cr_assert_null(pool_find(&pool, handle));
	cr_assert_neq(pool_handle_of(&pool, object), handle);
	pool_done(&pool);
}

Test(pool, invented_handles_find_nothing)
{
	struct pool pool;

	cr_assert_eq(pool_init(&pool, 8, COUNT), 0);
	cr_assert_null(pool_find(&pool, 0));
	cr_assert_null(pool_find(&pool, 3));		      /* free, even generation */
	cr_assert_null(pool_find(&pool, 1ull << 32));	      /* generation not reached yet */
	cr_assert_null(pool_find(&pool, 1ull << 32 | COUNT)); /* past the end */
	cr_assert_null(pool_find(&pool, UINT64_MAX));
	pool_done(&pool);
}

Test(pool, walking_by_index_sees_what_is_taken)
{
	struct pool pool;
	void *a, *b;

	cr_assert_eq(pool_init(&pool, 8, COUNT), 0);
	a = pool_take(&pool);
	b = pool_take(&pool);
	pool_put(&pool, a);
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert_eq(pool_at(&pool, i), i == pool_index_of(&pool, b) ? b : NULL);
	pool_done(&pool);
}

Test(pool, putting_twice_is_caught, .signal = SIGABRT)
{
	struct pool pool;
	void *object;

	cr_assert_eq(pool_init(&pool, 8, COUNT), 0);
	object = pool_take(&pool);
	pool_put(&pool, object);
	pool_put(&pool, object);
}

Test(pool, pointer_into_an_object_is_caught, .signal = SIGABRT)
{
	struct pool pool;

	cr_assert_eq(pool_init(&pool, 64, COUNT), 0);
	pool_put(&pool, (char *)pool_take(&pool) + 16);
}
