/* test_layers_shard.c - what shows that the file of a stored layer is another one than before. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/layers.h"
#include "layers/shard.h"

/* A file that replaces another one may have its size and its times, so each property counts. */
Test(layers_shard, each_property_shows_a_change) {
    char path[] = "/tmp/shard-XXXXXX";
    struct stat status;
    struct layer_shard shard = {0};
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &status), 0);
    shard_note(&shard, &status);
    cr_expect(shard_is_unchanged(&shard, fd));
    for (int i = 0; i < 7; i++) {
        struct layer_shard other = shard;
        *(i == 0 ? &other.device : i == 1 ? &other.inode : &other.size) += i < 3;
        (i < 5 ? &other.modified : &other.changed)->tv_sec += i == 3 || i == 5;
        (i < 5 ? &other.modified : &other.changed)->tv_nsec += i == 4 || i == 6;
        cr_expect_not(shard_is_unchanged(&other, fd), "property %d", i);
    }
    close(fd);
    unlink(path);
    cr_expect_not(shard_is_unchanged(&shard, -1));
}
