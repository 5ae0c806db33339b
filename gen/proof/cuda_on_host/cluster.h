// Clusters of blocks: where a block is among them, their barrier, and their shared memory, which each can reach.
#pragma once

namespace cuda_on_host {

__attribute__((const)) dim3 cluster_dimensions();
__attribute__((const)) unsigned cluster_rank();

// The barrier of the cluster in its two halves. `release`: what the thread did before is there for who has waited.
void arrive_at_cluster(bool release);
void wait_for_cluster();

// The same place of this block's shared memory in that of another block.
void* map_shared(const void* address, unsigned rank);

// The block in whose shared memory an address lies.
unsigned shared_rank(const void* address);

CUDA_ON_HOST_INLINE dim3 index_in_cluster() {
  const dim3 size = cluster_dimensions();
  const unsigned rank = cluster_rank();
  return dim3(rank % size.x, rank / size.x % size.y, rank / size.x / size.y);
}
CUDA_ON_HOST_INLINE dim3 over_cluster(dim3 blocks) {
  const dim3 size = cluster_dimensions();
  return dim3(blocks.x / size.x, blocks.y / size.y, blocks.z / size.z);
}

}  // namespace cuda_on_host

#define __cluster_dims__(...)

#define __clusterDimIsSpecified() 1u
#define __clusterDim() (cuda_on_host::cluster_dimensions())
#define __clusterRelativeBlockRank() (cuda_on_host::cluster_rank())
#define __clusterRelativeBlockIdx() (cuda_on_host::index_in_cluster())
#define __clusterIdx() (cuda_on_host::over_cluster(dim3(blockIdx.x, blockIdx.y, blockIdx.z)))
#define __clusterGridDimInClusters() (cuda_on_host::over_cluster(gridDim))
#define __clusterSizeInBlocks() (__clusterDim().x * __clusterDim().y * __clusterDim().z)

#define __cluster_barrier_arrive() cuda_on_host::arrive_at_cluster(true)
#define __cluster_barrier_arrive_relaxed() cuda_on_host::arrive_at_cluster(false)
#define __cluster_barrier_wait() cuda_on_host::wait_for_cluster()
#define __cluster_map_shared_rank(address, rank) cuda_on_host::map_shared(address, rank)
#define __cluster_query_shared_rank(address) cuda_on_host::shared_rank(address)
