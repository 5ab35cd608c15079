"""What `python -m cffi.gen_src` makes calyx_agent._engine of (CMakeLists.txt has the rule)."""

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef(
    """
    #define CALYX_DOOR_WHY_MAX ...
    #define CALYX_HISTOGRAM_BUCKETS ...

    enum calyx_direction { CALYX_DIR_READ, CALYX_DIR_WRITE, CALYX_DIR_SYNC, ... };
    struct calyx_hung { uint64_t offset, age_ns; enum calyx_direction direction; uint32_t job; };
    struct calyx_progress {
        uint64_t started_ns, ios, bytes, oldest_ns; bool done; uint32_t hung_count; struct calyx_hung hung[...];
    };
    struct calyx_door;

    struct calyx_door *calyx_door_open(const char *line, size_t length, char *why);
    int calyx_door_start(struct calyx_door *door, uint64_t start_ns);
    int calyx_door_wait(struct calyx_door *door, uint64_t timeout_ns);
    void calyx_door_progress(struct calyx_door *door, struct calyx_progress *progress);
    void calyx_door_stop(struct calyx_door *door);
    const char *calyx_door_document(struct calyx_door *door, size_t *length);
    const char *calyx_door_failure(struct calyx_door *door);
    void calyx_door_close(struct calyx_door *door);

    uint64_t calyx_now_ns(void);
    uint32_t calyx_histogram_index(uint64_t value_ns);
    uint64_t calyx_histogram_lower_ns(uint32_t index);
    uint64_t calyx_histogram_upper_ns(uint32_t index);
    """
)
ffibuilder.set_source("calyx_agent._engine", '#include "door.h"\n')
