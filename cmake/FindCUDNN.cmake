# CUDNN::cudnn, the graph API of cuDNN 9 (optional: without it attention is not measured).
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
                                                /usr/local/cuda PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
             HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
                   /usr/local/cuda
             PATH_SUFFIXES lib lib64)
find_library(CUDNN_GRAPH_LIBRARY NAMES cudnn_graph libcudnn_graph.so.9
             HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
                   /usr/local/cuda
             PATH_SUFFIXES lib lib64)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_GRAPH_LIBRARY CUDNN_INCLUDE_DIR)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES
                                                ${CUDNN_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES
                                                ${CUDNN_GRAPH_LIBRARY})
endif()
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_GRAPH_LIBRARY)
