# Whether the MLX backend is built. Sets STRATA_MLX_ENABLED.
set(STRATA_MLX auto CACHE STRING "The MLX backend: on, off, or auto: where MLX's CMake package is found")
set_property(CACHE STRATA_MLX PROPERTY STRINGS auto on off)

set(STRATA_MLX_ENABLED OFF)
if(NOT STRATA_MLX STREQUAL "off")
  find_package(MLX CONFIG QUIET)
  if(MLX_FOUND)
    set(STRATA_MLX_ENABLED ON)
    message(STATUS "MLX backend: on, MLX of ${MLX_DIR}")
  elseif(STRATA_MLX STREQUAL "on")
    message(FATAL_ERROR "STRATA_MLX is on, but MLX's CMake package was not found: run ./dev build --mlx, which "
                        "fetches it, or set MLX_DIR to a folder share/cmake/MLX")
  else()
    message(STATUS "MLX backend: off, MLX was not found")
  endif()
endif()
